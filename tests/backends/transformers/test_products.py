"""Products by oneDNN: what they share with torch's own."""

import pytest
import torch
from torch import nn

from backends.transformers.products import OneDnnLinear, multiply_by_onednn


@pytest.mark.skipif(not torch.cpu._is_avx512_bf16_supported(), reason="a CPU without these kernels")
def test_rearranged_weights_give_the_same_numbers_and_are_held_once() -> None:
    torch.manual_seed(0)
    embedding, body, head = nn.Embedding(40, 24), nn.Linear(24, 24), nn.Linear(24, 40, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, body, head).bfloat16().eval()
    ids, weight = torch.arange(7)[None], body.weight.detach().clone()
    with torch.inference_mode():
        before = model(ids)
        multiply_by_onednn(model)
        moved = (model(ids) - before).abs().max()
    assert moved <= 2 * torch.finfo(torch.bfloat16).eps * before.abs().max()  # sums may be in another order
    assert torch.equal(body.weight, weight)
    assert next(body.parameters()).untyped_storage().nbytes() == 2
    assert isinstance(head, OneDnnLinear)
    assert head.held.data_ptr() == embedding.weight.data_ptr()
