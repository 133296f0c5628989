"""Models made from a real one: `heavier` costs more and says the same; `shuffled` costs the same and says noise."""

from lab.synthetic.heavier import heavier
from lab.synthetic.shuffled import shuffled

__all__ = ["heavier", "shuffled"]
