"""What libraries ask about traces: see `proxy_tensor`."""
