"""Shape inference, and open dimensions made fixed."""
