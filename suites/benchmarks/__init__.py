"""Published benchmarks that the papers compare with: CrowS-Pairs, WinoQueer, StereoSet, WinoBias, EEC, BBQ, BNLI, BOLD.

Takes each benchmark's published file, fetched once by its sha256 or read from a folder; no data ships here. There are
three kinds of question: which sentence is likelier (`sentences`), which answer is given (`choices`), and how a text is
continued, as rated by classifiers (`texts`). A benchmark adds its reader and its published metric. `ability` stands
apart: it measures what a modified model can still do.
"""

from suites.benchmarks.ability import GeneralAbility
from suites.benchmarks.bbq import BBQ
from suites.benchmarks.bnli import BiasNLI
from suites.benchmarks.bold import BOLD
from suites.benchmarks.crows_pairs import CrowSPairs
from suites.benchmarks.eec import EEC
from suites.benchmarks.stereoset import StereoSet
from suites.benchmarks.winobias import WinoBias
from suites.benchmarks.winoqueer import WinoQueer

__all__ = ["BBQ", "BOLD", "EEC", "BiasNLI", "CrowSPairs", "GeneralAbility", "StereoSet", "WinoBias", "WinoQueer"]
