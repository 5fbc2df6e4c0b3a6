"""Models on vLLM, in this process.

Takes a folder or hub id and requests. Gives log-probabilities, one vLLM request for each token position that is asked
about, sorted so that the next one finds its start in the prefix cache, and texts by vLLM's own sampler.
"""

from backends.vllm.backend import VLLMBackend

__all__ = ["VLLMBackend"]
