"""llama-server's own tests against llama-server and `localspec serve`, side by side."""
