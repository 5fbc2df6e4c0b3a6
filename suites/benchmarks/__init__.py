"""Published benchmarks that the papers compare with: CrowS-Pairs, WinoQueer, StereoSet, WinoBias, BBQ, Bias NLI.

Takes each benchmark's published file, fetched once by its sha256 or read from a folder; no data ships here. Two kinds
of question carry them: which sentence is likelier (`sentences`), and which answer is right (`choices`). A benchmark
adds its reader and its published metric.
"""

from suites.benchmarks.bbq import BBQ
from suites.benchmarks.bnli import BiasNLI
from suites.benchmarks.crows_pairs import CrowSPairs, WinoQueer
from suites.benchmarks.stereoset import StereoSet
from suites.benchmarks.winobias import WinoBias

__all__ = ["BBQ", "BiasNLI", "CrowSPairs", "StereoSet", "WinoBias", "WinoQueer"]
