"""Serve: the loaded models behind the interfaces that other programs speak, over HTTP."""
