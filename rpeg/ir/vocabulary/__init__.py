"""The words of the language: settings, records, operand patterns, signatures."""
