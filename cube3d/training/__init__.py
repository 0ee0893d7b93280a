"""How assets/mini was made: raw meshes -> prepared tensors -> shape tokenizer -> transformer -> packed weights."""
