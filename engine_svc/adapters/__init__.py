"""LoRA adapters: read from the files that PEFT writes, kept in the decoder's slots."""
