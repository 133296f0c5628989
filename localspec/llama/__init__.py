"""The only importer of llama_cpp: models, contexts and devices, on its low-level API."""
