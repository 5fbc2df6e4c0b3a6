"""What the engines in this process share, whichever of them computes.

Takes requests, a tokenizer and an engine that values token paths or fills slots with running texts. Gives scores,
texts and the model's identity: boundaries between prompt and continuation, tries of shared prompts, sampling, chat
templates, GGUF headers, hashes of files.
"""
