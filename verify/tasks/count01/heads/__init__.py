"""Heads of Count01 models, dissected exactly: every quantity is a function of the counts (n0, n1, n2).

| module | job |
|---|---|
| separability, joint, everywhere | linear separability of one head, and of several, with a certificate either way |
| auc, best_threshold, svc | the documents' metrics |
| subsets, shapley | all subsets of heads, and what each head is worth |
| phase | one-dimensional heads in closed form |
| extract | a smaller model from the heads that separate |
| dissect | everything about one file, as a certificate |
| many, fitted | many heads at once, and their classifiers |
| drawing, distributions, ratios, random_heads, checkpoints | the figures |

The laws, the stored numbers and the tables stand in `count01/layer_norm`, which Count01's own proof needs as well.
"""

SUMMARY = "dissect the attention heads of a Count01 model: exact accuracies, AUC, separability with certificates"
