"""What libraries ask about tensors without data: see `fake_tensor`."""
