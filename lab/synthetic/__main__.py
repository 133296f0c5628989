"""Makes a model from another one's file, and prints its path.

python -m lab.synthetic heavier FILE FOLDER --times 4   # four times the layers, the same logits
python -m lab.synthetic shuffled FILE FOLDER            # the same cost and tokenizer, logits that are noise
"""

import argparse
from pathlib import Path

from lab.synthetic import heavier, shuffled

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("kind", choices=("heavier", "shuffled"))
parser.add_argument("file", type=Path)
parser.add_argument("folder", type=Path)
parser.add_argument("--times", type=int, default=4)
asked = parser.parse_args()
if asked.kind == "heavier":
    print(heavier(asked.file, asked.times, asked.folder, lambda _: None))
else:
    print(shuffled(asked.file, asked.folder))
