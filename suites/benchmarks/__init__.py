"""Published benchmarks that the papers compare with: CrowS-Pairs, WinoQueer, StereoSet, WinoBias, BBQ, Bias NLI, BOLD.

Takes each benchmark's published file, fetched once by its sha256 or read from a folder; no data ships here. Three kinds
of question carry them: which sentence is likelier (`sentences`), which answer is given (`choices`), and how a text goes
on, as classifiers read it (`texts`). A benchmark adds its reader and its published metric.
"""

from suites.benchmarks.ability import GeneralAbility
from suites.benchmarks.bbq import BBQ
from suites.benchmarks.bnli import BiasNLI
from suites.benchmarks.bold import BOLD
from suites.benchmarks.crows_pairs import CrowSPairs, WinoQueer
from suites.benchmarks.stereoset import StereoSet
from suites.benchmarks.winobias import WinoBias

__all__ = ["BBQ", "BOLD", "BiasNLI", "CrowSPairs", "GeneralAbility", "StereoSet", "WinoBias", "WinoQueer"]
