"""A GPU campaign in one command: what a device earns, costs and promises, within 25 minutes.

    python -m lab.gpu_campaign --build FOLDER --model FILE [--out DIR] [--minutes 25] [--only STAGE ...]

It needs this repository, a folder where llama.cpp was built (its shared libraries, of the version that llama-cpp-python binds;
llama-server and llama-bench where they were built, too) and one model. Every stage is a process of its own: what aborts
costs one stage. What a stage printed is written at once to `campaign.json`, and a page beside it; a second start continues
with the stages that are not done. Nothing is measured here that `lab.benchmarks`, `lab.peers`, `lab.same_text` or `localspec bench` measures.
"""
