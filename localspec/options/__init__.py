"""Options: every one is declared once, with its type, default, range, flag and setting beside it.

Imports only the standard library, and little of it: the start of the chat waits for this room.
"""

from localspec.options.launch import Abilities as Abilities
from localspec.options.launch import LaunchOptions as LaunchOptions
from localspec.options.launch import abilities as abilities
from localspec.options.load import HEADS_MEMORY as HEADS_MEMORY
from localspec.options.load import KV_TYPES as KV_TYPES
from localspec.options.load import LOAD_MODES as LOAD_MODES
from localspec.options.load import QUANTISED_KV_TYPES as QUANTISED_KV_TYPES
from localspec.options.load import SPLITS as SPLITS
from localspec.options.load import LoadOptions as LoadOptions
from localspec.options.option import Option as Option
from localspec.options.option import changed as changed
from localspec.options.option import cut as cut
from localspec.options.option import descriptions as descriptions
from localspec.options.option import option as option
from localspec.options.option import options_of as options_of
from localspec.options.option import values_of as values_of
from localspec.options.reply import FORBIDDEN as FORBIDDEN
from localspec.options.reply import GRAMMARS as GRAMMARS
from localspec.options.reply import LEAST_PASSAGE_TOKENS as LEAST_PASSAGE_TOKENS
from localspec.options.reply import PASSAGE_TOKENS as PASSAGE_TOKENS
from localspec.options.reply import ReplyOptions as ReplyOptions
from localspec.options.reply import SamplingParams as SamplingParams
