"""Published benchmarks that the papers compare with: CrowS-Pairs, WinoQueer, StereoSet, WinoBias, EEC, BBQ, BNLI, BOLD.

Takes each benchmark's published file, fetched once by its sha256 or read from a folder; no data ships here. Three kinds
of question carry them: which sentence is likelier (`sentences`), which answer is given (`choices`), and how a text goes
on, as classifiers read it (`texts`). A benchmark adds its reader and its published metric. `ability` is beside
them: what a model that was changed still can.
"""

from suites.benchmarks.ability import GeneralAbility
from suites.benchmarks.bbq import BBQ
from suites.benchmarks.bnli import BiasNLI
from suites.benchmarks.bold import BOLD
from suites.benchmarks.crows_pairs import CrowSPairs, WinoQueer
from suites.benchmarks.eec import EEC
from suites.benchmarks.stereoset import StereoSet
from suites.benchmarks.winobias import WinoBias

__all__ = ["BBQ", "BOLD", "EEC", "BiasNLI", "CrowSPairs", "GeneralAbility", "StereoSet", "WinoBias", "WinoQueer"]
