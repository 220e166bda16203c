"""Models with LayerNorm: every quantity is a function of the counts (n0, n1, n2), and decided by tables over them.

| module | job |
|---|---|
| laws | which inputs there are, and how often each occurs |
| surds, numbers | the stored numbers of each head, exactly |
| tables | float64 tables over all inputs with an error radius, and the digits that settle what it leaves open |
| cone | constraints on linear forms in the counts, and the signs of determinants that decide them |
| accuracy, syntax | the share of right answers, and of answers that are well formed |
| bounding, counting, margins | every count of a region, and the least margin |
"""
