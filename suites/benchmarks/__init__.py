"""Published benchmarks that the papers compare with: CrowS-Pairs, WinoQueer, StereoSet, WinoBias, EEC, BBQ, BNLI, BOLD.

Takes each benchmark's published file, fetched once by its sha256 or read from a folder; no data ships here. A benchmark
adds its reader and its metric to a kind of question (`suites.kinds`), or declares itself as a file does
(`suites.custom`). `ability` stands apart: it measures what a modified model can still do.
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
