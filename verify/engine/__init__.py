"""Any torch module on a finite token domain: captured as a graph, and evaluated with a proved error radius."""
