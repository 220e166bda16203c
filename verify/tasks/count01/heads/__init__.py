"""Heads of Count01 models, dissected exactly: every quantity is a function of the counts (n0, n1, n2).

| module | job |
|---|---|
| laws | which inputs there are, and how often each occurs |
| surds, numbers | the stored numbers of each head, exactly |
| tables | float64 tables over all inputs with an error radius, and the digits that settle what it leaves open |
| cone, separability, joint | linear separability of one head, and of several, with a certificate either way |
| accuracy, auc, svc, syntax | the documents' metrics |
| subsets, shapley | all subsets of heads, and what each head is worth |
| phase | one-dimensional heads in closed form |
| extract | a smaller model from the heads that separate |
| dissect | everything about one file, as a certificate |
"""

SUMMARY = "dissect the attention heads of a Count01 model: exact accuracies, AUC, separability with certificates"
