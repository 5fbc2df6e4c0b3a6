"""What the engines in this process share.

Takes requests, a tokenizer and an engine that scores token paths or generates texts in slots. Gives scores, texts and
the model's identity: the boundary between prompt and continuation, tries of shared prompts, sampling, chat templates,
GGUF headers, file hashes.
"""
