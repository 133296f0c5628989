"""Other programs that `python -m lab.peers` measures beside localspec: llama.cpp's server."""

from lab.peers.runs import open_runs
from lab.peers.setting import peer_program

__all__ = ["open_runs", "peer_program"]
