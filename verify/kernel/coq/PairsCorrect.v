(* What the check of a modular adder's file shows: if it says true, the file adds all pairs by its margin. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Weightproof Require Import Model Stored Sums Forms Words Check Tables Pairs UniformAttention PairChecks.
Import ListNotations.
Open Scope R_scope.

(* ---- Integers and the numbers they stand for ------------------------------------------------------------------------------------- *)

Lemma zdot_is_symmetric (u v : list Z) : zdot u v = zdot v u.
Proof. revert v. induction u as [|a u IH]; intros [|b v]; cbn [zdot]; try reflexivity. rewrite IH. ring. Qed.

Lemma against_is_product (f : format) (s : Z) (v : nat -> R) (u : list Z) (n k c : nat) (W : list (list Z)) (a : R) :
  (0 <= s)%Z -> all_fit2 f s W = true -> has_shape n k W = true -> 0 < a ->
  (forall j, (j < n)%nat -> v j = IZR (zat1 u j) / a) -> (c < k)%nat ->
  row_product n v (matrix_of f W) c = IZR (zat1 (map (zdot u) (columns k (integers2 f s W))) c) / (a * IZR (2 ^ s)).
Proof.
  intros Hs HW Hshape Ha Hv Hc. assert (H2 : 0 < IZR (2 ^ s)) by (apply IZR_lt, Z.pow_pos_nonneg; lia).
  unfold columns. rewrite map_map. unfold zat1 at 1. rewrite nth_map_seq by assumption.
  rewrite zdot_is_symmetric, (zdot_sum _ _ n).
  2: { unfold column. rewrite map_length. unfold integers2. rewrite map_length.
       unfold has_shape in Hshape. rewrite andb_true_iff in Hshape. now apply Nat.eqb_eq, Hshape. }
  unfold row_product, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros j Hj.
  rewrite Hv, (at2_matrix_of _ s) by assumption. rewrite zat1_column. field. lra.
Qed.

Lemma zat1_add (a : Z) (u v : list Z) (j : nat) : zat1 (add_scaled a u v) j = (a * zat1 u j + zat1 v j)%Z.
Proof. exact (zat_add_scaled a u v j). Qed.

Lemma zat1_map (f : Z -> Z) (l : list Z) (j : nat) : f 0%Z = 0%Z -> zat1 (map f l) j = f (zat1 l j).
Proof. intros H. unfold zat1. rewrite <- H at 1. apply map_nth. Qed.

Lemma in_thinned (l : list (list Z)) (u : list Z) : In u l -> In u (thinned l).
Proof.
  induction l as [|v l IH]; [easy|]. destruct l as [|w l]; [easy|]. cbn [thinned].
  destruct (list_eq_dec Z.eq_dec v w) as [->|_]; intros [<-|H]; [apply IH; now left|now apply IH|now left|right; now apply IH].
Qed.

Section File.
Variable x : pair_file.
Variable s : scales.
Variables margin shift : Z.
Hypothesis shapes : pair_shapes_hold x = true.
Hypothesis scales_are : scales_hold s = true.
Hypothesis fit : pair_words_fit x s = true.

Local Notation m := (stored_pair_model x).
Local Notation fmt := (pair_format x).
Local Notation d := (pair_width x).
Local Notation E := (token_rows x s).
Local Notation X := (position_rows x s).
Let two (k : Z) : R := IZR (2 ^ k).

Lemma scales_are_not_negative :
  (0 <= placed_scale s /\ 0 <= score_scale s /\ 0 <= value_scale s /\ 0 <= out_scale s /\ 0 <= read_scale s /\
   0 <= write_scale s /\ 0 <= logit_scale s)%Z.
Proof.
  unfold scales_hold in scales_are. rewrite forallb_forall in scales_are.
  repeat split; apply Z.leb_le, scales_are; cbn; tauto.
Qed.

Lemma scales_add_up :
  (0 <= stream_scale s)%Z /\ (0 <= neuron_scale s)%Z /\ (0 <= last_scale s)%Z /\ (0 <= logits_scale s)%Z.
Proof. pose proof scales_are_not_negative. unfold logits_scale, last_scale, neuron_scale, stream_scale. lia. Qed.

Lemma two_positive (k : Z) : (0 <= k)%Z -> 0 < two k.
Proof. intros H. apply IZR_lt, Z.pow_pos_nonneg; lia. Qed.

Lemma two_plus (j k : Z) : (0 <= j)%Z -> (0 <= k)%Z -> two (j + k) = two j * two k.
Proof. intros Hj Hk. unfold two. now rewrite Z.pow_add_r, mult_IZR by assumption. Qed.

Lemma placed_is_stored (t i j : nat) : placed m t i j = IZR (zat1 (placed_row E X t i) j) / two (placed_scale s).
Proof.
  pose proof scales_are_not_negative as Hs. unfold pair_words_fit in fit. rewrite !andb_true_iff in fit.
  unfold placed, placed_row. cbn [tokens positions stored_pair_model].
  rewrite !(at2_matrix_of fmt (placed_scale s)) by tauto. rewrite zat1_add, plus_IZR, mult_IZR.
  fold (two (placed_scale s)). unfold token_rows, position_rows, zat2. field.
  assert (0 < two (placed_scale s)) by (apply two_positive; tauto). lra.
Qed.

Lemma own_is_stored (j : nat) : own m j = IZR (zat1 (own_row x E X) j) / two (placed_scale s).
Proof. apply placed_is_stored. Qed.

Lemma score_is_stored (h : head_file) (k : embedded) (row : list Z) :
  head_shapes_hold x h = true -> head_words_fit x s h = true ->
  (forall j, k j = IZR (zat1 row j) / two (placed_scale s)) ->
  pair_score m (stored_head fmt h) k
  = IZR (zdot (map (zdot (own_row x E X)) (columns (pair_key_width x) (integers2 fmt (score_scale s) (q_words h))))
          (map (zdot row) (columns (pair_key_width x) (integers2 fmt (score_scale s) (k_words h)))))
    / (two (placed_scale s) * two (score_scale s) * (two (placed_scale s) * two (score_scale s))).
Proof.
  intros Hshape Hfit Hk. pose proof scales_are_not_negative as Hs.
  unfold head_shapes_hold in Hshape. unfold head_words_fit in Hfit. rewrite !andb_true_iff in Hshape, Hfit.
  assert (Hp : 0 < two (placed_scale s)) by (apply two_positive; tauto).
  assert (Hq : 0 < two (score_scale s)) by (apply two_positive; tauto).
  rewrite (zdot_sum _ _ (pair_key_width x)) by (unfold columns; now rewrite !map_length, seq_length).
  unfold pair_score, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros c Hc.
  cbn [key_width width stored_pair_model head_q head_k stored_head] in *.
  rewrite (against_is_product fmt (score_scale s) _ (own_row x E X) d (pair_key_width x) c _ (two (placed_scale s)))
    by (tauto || (intros; apply own_is_stored)).
  rewrite (against_is_product fmt (score_scale s) _ row d (pair_key_width x) c _ (two (placed_scale s)))
    by (tauto || (intros; apply Hk)).
  fold (two (score_scale s)). field. lra.
Qed.

Lemma head_mixes_uniformly (h : head_file) (a b c : nat) :
  head_shapes_hold x h = true -> head_words_fit x s h = true -> head_is_uniform x s E X h = true ->
  (a < modulus m)%nat -> (b < modulus m)%nat ->
  mixed_by m (stored_head fmt h) a b c = row_product d (fun j => keys_sum m a b j / 3) (head_v (stored_head fmt h)) c.
Proof.
  intros Hshape Hfit Huniform Ha Hb. unfold head_is_uniform in Huniform. rewrite forallb_forall in Huniform.
  assert (Hsame : forall t, (t < modulus m)%nat ->
    pair_score m (stored_head fmt h) (placed m t 0) = pair_score m (stored_head fmt h) (own m) /\
    pair_score m (stored_head fmt h) (placed m t 1) = pair_score m (stored_head fmt h) (own m)).
  { intros t Ht. cbn [modulus stored_pair_model] in Ht. specialize (Huniform t). rewrite in_seq, andb_true_iff, !Z.eqb_eq in Huniform.
    destruct (Huniform ltac:(lia)) as [H0 H1].
    rewrite (score_is_stored h (own m) (own_row x E X)), (score_is_stored h (placed m t 0) (placed_row E X t 0)),
      (score_is_stored h (placed m t 1) (placed_row E X t 1))
      by (assumption || (intros; apply own_is_stored) || (intros; apply placed_is_stored)).
    now rewrite H0, H1. }
  apply mixed_uniformly; now apply Hsame.
Qed.

(* ---- One pair, whose three tokens are stored as the row r --------------------------------------------------------------------------- *)

Section Pair.
Variables (a b : nat) (r : list Z).
Hypothesis a_below : (a < modulus m)%nat.
Hypothesis b_below : (b < modulus m)%nat.
Hypothesis r_is_sum : forall j, keys_sum m a b j = IZR (zat1 r j) / two (placed_scale s).
Hypothesis uniform : forallb (head_is_uniform x s E X) (heads_words x) = true.

Let u := add_scaled 1 (own_part x s E X) (written (map (head_columns x s) (heads_words x)) r).

Lemma heads_are_stored (l : list head_file) (j : nat) : (j < d)%nat ->
  forallb (head_shapes_hold x) l = true -> forallb (head_words_fit x s) l = true -> forallb (head_is_uniform x s E X) l = true ->
  total (map (fun h => row_product (value_width m) (mixed_by m h a b) (head_o h) j) (map (stored_head fmt) l))
  = IZR (zat1 (written (map (head_columns x s) l) r) j) / (3 * two (stream_scale s)).
Proof.
  intros Hj. pose proof scales_are_not_negative as Hs.
  assert (Hp : 0 < two (placed_scale s)) by (apply two_positive; tauto).
  assert (Hv : 0 < two (value_scale s)) by (apply two_positive; tauto).
  assert (Ho : 0 < two (out_scale s)) by (apply two_positive; tauto).
  assert (H3 : two (stream_scale s) = two (placed_scale s) * two (value_scale s) * two (out_scale s)).
  { unfold stream_scale. rewrite !two_plus by lia. reflexivity. }
  induction l as [|h l IH]; intros Hshapes Hfits Hall.
  - cbn [map total fold_right written]. unfold zat1. rewrite nth_overflow by (cbn; lia). unfold Rdiv. ring.
  - cbn [forallb] in *. rewrite andb_true_iff in Hshapes, Hfits, Hall. destruct Hshapes as [Hshape Hshapes].
    destruct Hfits as [Hfit Hfits]. destruct Hall as [Hone Hall]. specialize (IH Hshapes Hfits Hall).
    cbn [map].
    change (written (head_columns x s h :: map (head_columns x s) l) r) with
      (add_scaled 1 (map (zdot (map (zdot r) (columns (pair_value_width x) (integers2 fmt (value_scale s) (v_words h)))))
        (columns d (integers2 fmt (out_scale s) (o_words h)))) (written (map (head_columns x s) l) r)).
    unfold total in *. cbn [fold_right]. rewrite IH. clear IH. rewrite zat1_add, plus_IZR, mult_IZR.
    assert (Hh := Hshape). assert (Hf := Hfit). unfold head_shapes_hold in Hh. unfold head_words_fit in Hf.
    rewrite !andb_true_iff in Hh, Hf.
    rewrite (against_is_product fmt (out_scale s) _
      (map (zdot r) (columns (pair_value_width x) (integers2 fmt (value_scale s) (v_words h))))
      (pair_value_width x) d j (o_words h) (3 * (two (placed_scale s) * two (value_scale s)))).
    + fold (two (out_scale s)). rewrite H3. field. lra.
    + tauto.
    + tauto.
    + tauto.
    + nra.
    + intros c Hc. rewrite head_mixes_uniformly by assumption. rewrite row_product_over.
      cbn [head_v stored_head]. rewrite (against_is_product fmt (value_scale s) _ r d (pair_value_width x) c _ (two (placed_scale s)))
        by (tauto || (intros; apply r_is_sum)).
      fold (two (value_scale s)). field. lra.
    + exact Hj.
Qed.

Lemma stream_is_stored (j : nat) : (j < d)%nat -> stream m a b j = IZR (zat1 u j) / (3 * two (stream_scale s)).
Proof.
  intros Hj. pose proof scales_are_not_negative as Hs.
  assert (Hp : 0 < two (placed_scale s)) by (apply two_positive; tauto).
  assert (Hvo : 0 < two (value_scale s + out_scale s)) by (apply two_positive; lia).
  assert (H3 : two (stream_scale s) = two (placed_scale s) * two (value_scale s + out_scale s)).
  { unfold stream_scale. rewrite <- Z.add_assoc, two_plus by lia. reflexivity. }
  unfold stream. cbn [heads stored_pair_model]. rewrite heads_are_stored.
  - unfold u. rewrite zat1_add, plus_IZR, mult_IZR. unfold own_part. cbn [keeps_stream stored_pair_model].
    destruct (pair_keeps_stream x).
    + rewrite (zat1_map (Z.mul _)) by apply Z.mul_0_r. rewrite !mult_IZR. fold (two (value_scale s + out_scale s)).
      rewrite own_is_stored, H3. field. lra.
    + replace (zat1 [] j) with 0%Z by (unfold zat1; now destruct j). field. nra.
  - exact Hj.
  - unfold pair_shapes_hold in shapes. rewrite !andb_true_iff in shapes. tauto.
  - unfold pair_words_fit in fit. rewrite !andb_true_iff in fit. tauto.
  - exact uniform.
Qed.

Let fired := map (Z.max 0) (add_scaled 1 (map (zdot u) (columns (pair_neurons x) (integers2 fmt (read_scale s) (mlp_1_words x))))
  (map (Z.mul 3) (integers1 fmt (neuron_scale s) (bias_1_words x)))).

Lemma neuron_is_stored (n : nat) : (n < pair_neurons x)%nat ->
  neuron_value m a b n = IZR (zat1 fired n) / (3 * two (neuron_scale s)).
Proof.
  intros Hn. pose proof scales_are_not_negative as Hs. pose proof scales_add_up as Hsum.
  assert (Hp : 0 < two (stream_scale s)) by (apply two_positive; tauto).
  assert (Hr : 0 < two (read_scale s)) by (apply two_positive; tauto).
  assert (H3 : two (neuron_scale s) = two (stream_scale s) * two (read_scale s)) by (unfold neuron_scale; apply two_plus; tauto).
  assert (S := shapes). assert (F := fit). unfold pair_shapes_hold in S. unfold pair_words_fit in F. rewrite !andb_true_iff in S, F.
  unfold neuron_value, fired. rewrite zat1_map by reflexivity. rewrite IZR_max0.
  rewrite zat1_add, plus_IZR, mult_IZR, (zat1_map (Z.mul 3)) by reflexivity. rewrite mult_IZR.
  cbn [width mlp_1 bias_1 stored_pair_model].
  rewrite (against_is_product fmt (read_scale s) _ u d (pair_neurons x) n _ (3 * two (stream_scale s)))
    by (tauto || lra || apply stream_is_stored).
  rewrite (at1_vector_of fmt (neuron_scale s)) by tauto. fold (two (neuron_scale s)) (two (read_scale s)). rewrite H3.
  match goal with |- Rmax 0 ?l = Rmax 0 ?q / ?D =>
    assert (HD : 0 < D) by nra; replace l with (q * / D) by (field; lra); unfold Rdiv;
    rewrite <- (Rmult_0_l (/ D)) at 1; rewrite (Rmult_comm 0), !(Rmult_comm _ (/ D)), RmaxRmult;
    [reflexivity|apply Rlt_le, Rinv_0_lt_compat, HD] end.
Qed.

Let y := add_scaled (if pair_keeps_stream x then 2 ^ (read_scale s + write_scale s) else 0)%Z u
  (map (zdot fired) (columns d (integers2 fmt (write_scale s) (mlp_2_words x)))).

Lemma last_stream_is_stored (j : nat) : (j < d)%nat -> last_stream m a b j = IZR (zat1 y j) / (3 * two (last_scale s)).
Proof.
  intros Hj. pose proof scales_are_not_negative as Hs. pose proof scales_add_up as Hsum.
  assert (Hn : 0 < two (neuron_scale s)) by (apply two_positive; tauto).
  assert (Hw : 0 < two (write_scale s)) by (apply two_positive; tauto).
  assert (Hp : 0 < two (stream_scale s)) by (apply two_positive; tauto).
  assert (Hr : 0 < two (read_scale s)) by (apply two_positive; tauto).
  assert (H3 : two (last_scale s) = two (neuron_scale s) * two (write_scale s)) by (unfold last_scale; apply two_plus; tauto).
  assert (H4 : two (neuron_scale s) = two (stream_scale s) * two (read_scale s)) by (unfold neuron_scale; apply two_plus; tauto).
  assert (S := shapes). assert (F := fit). unfold pair_shapes_hold in S. unfold pair_words_fit in F. rewrite !andb_true_iff in S, F.
  unfold last_stream, y. rewrite zat1_add, plus_IZR, mult_IZR. cbn [neurons mlp_2 keeps_stream stored_pair_model].
  rewrite (against_is_product fmt (write_scale s) _ fired (pair_neurons x) d j _ (3 * two (neuron_scale s)))
    by (tauto || lra || apply neuron_is_stored).
  fold (two (write_scale s)). rewrite H3, H4. destruct (pair_keeps_stream x).
  - rewrite stream_is_stored by assumption. fold (two (read_scale s + write_scale s)). rewrite two_plus by tauto. field. lra.
  - field. lra.
Qed.

Lemma logit_is_stored (c : nat) : (c < modulus m)%nat ->
  pair_logit m a b c = IZR (zat1 (logits_of x s (columns (pair_neurons x) (integers2 fmt (read_scale s) (mlp_1_words x)))
    (map (Z.mul 3) (integers1 fmt (neuron_scale s) (bias_1_words x)))
    (columns d (integers2 fmt (write_scale s) (mlp_2_words x)))
    (columns (pair_modulus x) (integers2 fmt (logit_scale s) (readout_words x)))
    (map (Z.mul 3) (integers1 fmt (logits_scale s) (bias_out_words x))) u) c) / (3 * two (logits_scale s)).
Proof.
  intros Hc. pose proof scales_are_not_negative as Hs. pose proof scales_add_up as Hsum.
  assert (Hl : 0 < two (last_scale s)) by (apply two_positive; tauto).
  assert (Ho : 0 < two (logit_scale s)) by (apply two_positive; tauto).
  assert (H3 : two (logits_scale s) = two (last_scale s) * two (logit_scale s)) by (unfold logits_scale; apply two_plus; tauto).
  assert (S := shapes). assert (F := fit). unfold pair_shapes_hold in S. unfold pair_words_fit in F. rewrite !andb_true_iff in S, F.
  unfold logits_of. cbv zeta. fold fired. fold y.
  rewrite zat1_add, plus_IZR, mult_IZR, (zat1_map (Z.mul 3)) by reflexivity. rewrite mult_IZR.
  unfold pair_logit. cbn [width readout bias_out modulus stored_pair_model] in *.
  rewrite (against_is_product fmt (logit_scale s) _ y d (pair_modulus x) c _ (3 * two (last_scale s)))
    by (tauto || lra || apply last_stream_is_stored).
  rewrite (at1_vector_of fmt (logits_scale s)) by tauto. fold (two (logits_scale s)) (two (logit_scale s)). rewrite H3.
  field. lra.
Qed.
End Pair.

Lemma ahead_by_the_margin (a b due c : nat) (logits : list Z) :
  (logits_scale s <= shift)%Z ->
  (forall c, (c < modulus m)%nat -> pair_logit m a b c = IZR (zat1 logits c) / (3 * two (logits_scale s))) ->
  is_ahead (pair_modulus x) due (needed s margin shift) logits = true -> (due < modulus m)%nat -> (c < modulus m)%nat -> c <> due ->
  pair_logit m a b c + IZR margin / two shift <= pair_logit m a b due.
Proof.
  intros Hshift Hlogits Hahead Hdue Hc Hne. pose proof scales_add_up as Hsum.
  unfold is_ahead in Hahead. rewrite forallb_forall in Hahead. specialize (Hahead c). rewrite in_seq in Hahead.
  cbn [modulus stored_pair_model] in Hc. specialize (Hahead ltac:(lia)). apply orb_true_iff in Hahead as [H|H].
  { apply Nat.eqb_eq in H. congruence. }
  apply Z.leb_le in H. rewrite !Hlogits by assumption.
  assert (Hl : 0 < two (logits_scale s)) by (apply two_positive; tauto).
  set (k := (shift - logits_scale s)%Z) in *. assert (Hk : (0 <= k)%Z) by (unfold k; lia).
  assert (Htwo : two shift = two (logits_scale s) * two k).
  { rewrite <- two_plus by lia. f_equal. unfold k. lia. }
  assert (Hpow : (0 < 2 ^ k)%Z) by (apply Z.pow_pos_nonneg; lia).
  assert (Hneed : (3 * margin <= needed s margin shift * 2 ^ k)%Z).
  { unfold needed. fold k. pose proof (Z.mul_div_le (- (3 * margin)) (2 ^ k) Hpow). lia. }
  apply IZR_le in Hneed, H. rewrite plus_IZR in H. rewrite !mult_IZR in Hneed. fold (two k) in Hneed.
  assert (Hkp : 0 < two k) by (apply two_positive; exact Hk).
  rewrite Htwo. apply Rmult_le_reg_l with (3 * two (logits_scale s) * two k); [repeat apply Rmult_lt_0_compat; lra|].
  replace (3 * two (logits_scale s) * two k * (IZR (zat1 logits c) / (3 * two (logits_scale s)) + IZR margin / (two (logits_scale s) * two k)))
    with (IZR (zat1 logits c) * two k + 3 * IZR margin) by (field; lra).
  replace (3 * two (logits_scale s) * two k * (IZR (zat1 logits due) / (3 * two (logits_scale s))))
    with (IZR (zat1 logits due) * two k) by (field; lra).
  nra.
Qed.
Lemma sum_row_is_stored (a b i j : nat) : (i = a /\ j = b) \/ (i = b /\ j = a) -> forall l,
  keys_sum m a b l = IZR (zat1 (sum_row E (rest_of_sum x E X) i j) l) / two (placed_scale s).
Proof.
  intros Hij l. pose proof scales_are_not_negative as Hs. assert (Hp : 0 < two (placed_scale s)) by (apply two_positive; tauto).
  unfold keys_sum. rewrite own_is_stored, !placed_is_stored. unfold placed_row, sum_row, rest_of_sum.
  rewrite !zat1_add. repeat rewrite ?plus_IZR, ?mult_IZR.
  destruct Hij as [[-> ->]|[-> ->]]; field; lra.
Qed.

Lemma all_pairs_are_ahead (a b c : nat) :
  (logits_scale s <= shift)%Z -> forallb (head_is_uniform x s E X) (heads_words x) = true ->
  pairs_are_ahead x s margin shift E X = true -> (a < modulus m)%nat -> (b < modulus m)%nat ->
  (c < modulus m)%nat -> c <> ((a + b) mod modulus m)%nat ->
  pair_logit m a b c + IZR margin / two shift <= pair_logit m a b ((a + b) mod modulus m).
Proof.
  intros Hshift Huniform H Ha Hb Hc Hne. unfold pairs_are_ahead in H. cbv zeta in H. rewrite forallb_forall in H.
  cbn [modulus stored_pair_model] in Ha, Hb, Hc, Hne |- *. set (P := pair_modulus x) in *.
  specialize (H (a + b)%nat). rewrite in_seq in H. specialize (H ltac:(lia)). rewrite forallb_forall in H.
  assert (Hsmall : exists i j, ((i = a /\ j = b) \/ (i = b /\ j = a)) /\ (i <= (a + b) / 2)%nat).
  { assert (Hhalf : (a + b < 2 * S ((a + b) / 2))%nat) by (pose proof (Nat.mul_succ_div_gt (a + b) 2); lia).
    destruct (le_lt_dec a b); [exists a, b|exists b, a]; split; try tauto; lia. }
  destruct Hsmall as (i & j & Hij & Hi). assert (Hz : (a + b = i + j)%nat) by lia.
  assert (Hin : In i (seq (a + b - (P - 1)) (S ((a + b) / 2) - (a + b - (P - 1))))) by (apply in_seq; lia).
  assert (Hj : (a + b - i = j)%nat) by lia.
  assert (Hm : ((a + b) mod P < P)%nat) by (apply Nat.mod_upper_bound; lia).
  eapply ahead_by_the_margin with
    (logits := logits_of x s _ _ _ _ _ (add_scaled 1 (own_part x s E X)
      (written (map (head_columns x s) (heads_words x)) (sum_row E (rest_of_sum x E X) i j)))); [exact Hshift| | |exact Hm|exact Hc|exact Hne].
  - intros c' Hc'. apply (logit_is_stored a b (sum_row E (rest_of_sum x E X) i j)); try assumption.
    now apply sum_row_is_stored.
  - apply H, in_thinned, in_map_iff. exists i. split; [|exact Hin]. now rewrite Hj.
Qed.
End File.

(* ---- The theorem ------------------------------------------------------------------------------------------------------------------ *)

Lemma words_of_matrix (f : format) (s : Z) (W : list (list Z)) : all_fit2 f s W = true -> Forall (is_number f) (concat W).
Proof.
  unfold all_fit2. rewrite forallb_forall. intros HW. apply Forall_concat, Forall_forall. intros l Hl. specialize (HW l Hl).
  unfold all_fit1 in HW. rewrite forallb_forall in HW. apply Forall_forall. intros w Hw. now apply (fits_is_number _ s), HW.
Qed.

Theorem check_pairs_correct (x : pair_file) (s : scales) (margin shift : Z) :
  check_pairs x s margin shift = true -> file_adds x margin shift.
Proof.
  unfold check_pairs. cbv zeta. rewrite !andb_true_iff, Z.leb_le, Z.ltb_lt.
  intros [[[[[shapes scales_are] fit] Hpos] Hshift] [Huniform H]].
  refine (conj _ (conj _ (conj _ _))).
  - unfold pair_words_fit in fit. rewrite !andb_true_iff in fit.
    destruct fit as [[[[[[[HE HX] Hheads] H1] Hb1] H2] Ho] Hbo].
    unfold pair_words. rewrite !concat_app, !Forall_app. cbn [concat]. rewrite !app_nil_r.
    assert (F1 : forall k l, all_fit1 (pair_format x) k l = true -> Forall (is_number (pair_format x)) l).
    { intros k l Hl. assert (H' := words_of_matrix (pair_format x) k [l]). cbn [all_fit2 forallb concat] in H'.
      rewrite app_nil_r in H'. apply H'. unfold all_fit2. cbn [forallb]. now rewrite Hl. }
    repeat split; try (eapply words_of_matrix; eassumption); try (eapply F1; eassumption).
    clear - Hheads. revert Hheads. induction (heads_words x) as [|h l IH]; [constructor|]. cbn [forallb map concat]. rewrite andb_true_iff.
    intros [Hh Hl]. rewrite concat_app, Forall_app. split; [|now apply IH].
    unfold head_words_fit in Hh. rewrite !andb_true_iff in Hh. unfold head_words. rewrite !concat_app, !Forall_app.
    repeat split; eapply words_of_matrix; apply Hh.
  - unfold pair_shapes_hold in shapes. rewrite !andb_true_iff, Nat.leb_le in shapes.
    destruct shapes as [[[[[[[[HE HX] Hheads] H1] Hb1] H2] Ho] Hbo] HP].
    assert (S2 : forall n k M, has_shape n k M = true -> shape2 n k (matrix_of (pair_format x) M))
      by (intros n k M; apply has_shape_map).
    assert (S1 : forall n l, has_length n l = true -> shape1 n (vector_of (pair_format x) l)) by (intros n l; apply has_length_map).
    unfold pair_shapes. cbn [modulus width neurons tokens positions heads mlp_1 bias_1 mlp_2 readout bias_out stored_pair_model].
    refine (conj (S2 _ _ _ HE) (conj (S2 _ _ _ HX) (conj _ (conj (S2 _ _ _ H1) (conj (S1 _ _ Hb1) (conj (S2 _ _ _ H2)
      (conj (S2 _ _ _ Ho) (conj (S1 _ _ Hbo) HP)))))))).
    rewrite forallb_forall in Hheads. apply Forall_forall. intros h Hin. apply in_map_iff in Hin as [file [<- Hin]].
    specialize (Hheads file Hin). unfold head_shapes_hold in Hheads. rewrite !andb_true_iff in Hheads.
    unfold head_shapes. cbn [width key_width value_width stored_pair_model stored_head head_q head_k head_v head_o].
    refine (conj (S2 _ _ _ _) (conj (S2 _ _ _ _) (conj (S2 _ _ _ _) (S2 _ _ _ _)))); apply Hheads.
  - apply Rdiv_lt_0_compat; [now apply IZR_lt|].
    assert (0 <= logits_scale s)%Z by (now apply scales_add_up). apply IZR_lt, Z.pow_pos_nonneg; lia.
  - intros a b Ha Hb c Hc Hne. exact (all_pairs_are_ahead x s margin shift shapes scales_are fit a b c Hshift Huniform H Ha Hb Hc Hne).
Qed.
