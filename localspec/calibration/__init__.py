"""What was measured on this machine, kept from one run to the next: costs of passes, safe widths."""
