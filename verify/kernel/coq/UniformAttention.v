(* A modular adder whose "=" gives all three tokens the same score: what a head mixes is a third of each. *)

From Coq Require Import Reals List Lra.
From Weightproof Require Import Model Sums Pairs.
Import ListNotations.
Open Scope R_scope.

Lemma row_product_over (n : nat) (v : nat -> R) (a : R) (W : matrix) (c : nat) :
  row_product n (fun j => v j / a) W c = row_product n v W c / a.
Proof. unfold row_product, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros j _. ring. Qed.

Definition keys_sum (m : pair_model) (a b : nat) : embedded := fun j => placed m a 0 j + placed m b 1 j + own m j.

Lemma mixed_uniformly (m : pair_model) (h : attention_head) (a b c : nat) :
  pair_score m h (placed m a 0) = pair_score m h (own m) -> pair_score m h (placed m b 1) = pair_score m h (own m) ->
  mixed_by m h a b c = row_product (width m) (fun j => keys_sum m a b j / 3) (head_v h) c.
Proof.
  intros Ha Hb. unfold mixed_by, attended_to, pair_weight. cbn [map total fold_right]. rewrite Ha, Hb.
  pose proof (exp_pos (pair_score m h (own m))) as He. set (e := exp _) in *.
  rewrite row_product_over. unfold keys_sum, row_product, Rdiv.
  rewrite (sum_ext _ (fun j => (placed m a 0 j + placed m b 1 j + own m j) * at2 (head_v h) j c)
    (fun j => placed m a 0 j * at2 (head_v h) j c + placed m b 1 j * at2 (head_v h) j c + own m j * at2 (head_v h) j c))
    by (intros; ring).
  rewrite !sum_plus. field. lra.
Qed.
