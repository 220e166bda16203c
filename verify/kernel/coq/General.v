(* General theorems, without computation: weights that count for all T and L.

   relation_counting (A-4.2): for all T, L and d >= T there are weights of a dot model with one neuron that count.
   one_dimension_less (R2): for all T >= 3 and L >= 1, d = T - 1 suffices. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model Sums Reduction.
Import ListNotations.
Open Scope R_scope.

(* ---- Tensors given by formulas --------------------------------------------------------------------------------------- *)

Definition vector_by (n : nat) (f : nat -> R) : vector := map f (seq 0 n).
Definition matrix_by (n k : nat) (f : nat -> nat -> R) : matrix := map (fun i => vector_by k (f i)) (seq 0 n).

Lemma nth_by {X : Type} (f : nat -> X) (n i : nat) (y : X) : (i < n)%nat -> nth i (map f (seq 0 n)) y = f i.
Proof.
  intros H. rewrite (nth_indep _ _ (f O)) by now rewrite map_length, seq_length.
  now rewrite map_nth, seq_nth.
Qed.

Lemma at1_by (n i : nat) (f : nat -> R) : (i < n)%nat -> at1 (vector_by n f) i = f i.
Proof. apply nth_by. Qed.

Lemma at2_by (n k i j : nat) (f : nat -> nat -> R) : (i < n)%nat -> (j < k)%nat -> at2 (matrix_by n k f) i j = f i j.
Proof. intros Hi Hj. unfold at2, matrix_by. rewrite nth_by by assumption. now apply at1_by. Qed.

Lemma shape1_by (n : nat) (f : nat -> R) : shape1 n (vector_by n f).
Proof. unfold shape1, vector_by. now rewrite map_length, seq_length. Qed.

Lemma shape2_by (n k : nat) (f : nat -> nat -> R) : shape2 n k (matrix_by n k f).
Proof.
  split; [apply shape1_by with (f := fun _ => 0) || (unfold matrix_by; now rewrite map_length, seq_length)|].
  apply Forall_forall. intros row Hrow. unfold matrix_by in Hrow.
  apply in_map_iff in Hrow as [i [<- _]]. apply shape1_by.
Qed.

(* 1 where i = j, else 0; and sums with it. *)
Definition delta (i j : nat) : R := if (i =? j)%nat then 1 else 0.

Lemma sum_delta (n i : nat) (f : nat -> R) : (i < n)%nat -> sum n (fun j => delta i j * f j) = f i.
Proof.
  intros Hi. induction n as [|n IH]; [lia|]. simpl. unfold delta at 2.
  destruct (Nat.eqb_spec i n) as [->|Hne].
  - rewrite (sum_ext _ _ (fun _ => 0)), sum_zero; [lra|].
    intros j Hj. unfold delta. destruct (Nat.eqb_spec n j); [lia|lra].
  - rewrite IH by lia. lra.
Qed.

Lemma sum_delta_right (n i : nat) (f : nat -> R) : (i < n)%nat -> sum n (fun j => f j * delta j i) = f i.
Proof.
  intros Hi. rewrite (sum_ext _ _ (fun j => delta i j * f j)); [now apply sum_delta|].
  intros j _. unfold delta. rewrite Nat.eqb_sym. lra.
Qed.

Lemma sum_const (n : nat) (a : R) : sum n (fun _ => a) = INR n * a.
Proof. induction n as [|n IH]; [simpl; lra|]. rewrite S_INR. cbn [sum]. rewrite IH. lra. Qed.

(* ---- Counting by relations: the one neuron reads beta times the count ----------------------------------------------------- *)

(* What the neuron reads from token t. *)
Definition reading (m : model) (t : nat) : R := times m (embedding m t) (W_1 m) 0.

(* The readout: with z beta times the count, logit c is 2 (c + 1) (z / beta) - (c + 1)^2, largest at c + 1 = count. *)
Definition W_2_of (L : nat) (beta : R) : matrix := matrix_by 1 L (fun _ c => 2 * INR (c + 1) / beta).
Definition b_2_of (L : nat) : vector := vector_by L (fun c => - (INR (c + 1) * INR (c + 1))).

Lemma total_by_count (x : list nat) (t : nat) (a b : R) :
  total (map (fun s => a + (if (s =? t)%nat then b else 0)) x) = INR (length x) * a + INR (count_occ Nat.eq_dec x t) * b.
Proof.
  induction x as [|s x IH]; [simpl; lra|]. cbn [map total fold_right]. fold (total (map (fun s => a + (if (s =? t)%nat then b else 0)) x)).
  rewrite IH. cbn [length count_occ]. rewrite S_INR.
  destruct (Nat.eq_dec s t) as [->|Hne].
  - rewrite Nat.eqb_refl, S_INR. lra.
  - rewrite (proj2 (Nat.eqb_neq s t) Hne). lra.
Qed.

Lemma squared_distance (k j : nat) : j <> k -> 1 <= (INR k - INR j) * (INR k - INR j).
Proof.
  intros Hne. destruct (Nat.lt_ge_cases j k) as [H|H].
  - assert (INR j + 1 <= INR k) by (rewrite <- S_INR; apply le_INR; lia). nra.
  - assert (INR k + 1 <= INR j) by (rewrite <- S_INR; apply le_INR; lia). nra.
Qed.

Section Relations.
Variable m : model.
Variable alpha : nat -> R.
Variable beta : R.
Hypothesis is_dot : kind m = Dot.
Hypothesis no_softmax : softmax m = false.
Hypothesis one_neuron : p m = 1%nat.
Hypothesis classes_are_counts : classes m = L m /\ first_count m = 1%nat.
Hypothesis beta_positive : 0 < beta.
Hypothesis relation : forall t s, (t < T m)%nat -> (s < T m)%nat ->
  score m (embedding m t) (embedding m s) * reading m s = alpha t + (if (s =? t)%nat then beta else 0).
Hypothesis bias : forall t, (t < T m)%nat -> reading m t + at1 (b_1 m) 0 + INR (L m) * alpha t = 0.
Hypothesis readout : W_2 m = W_2_of (L m) beta /\ b_2 m = b_2_of (L m).

Lemma preactivation_is_count (x : list nat) (i : nat) : is_sequence m x -> (i < L m)%nat ->
  times m (mixed_token m x i) (W_1 m) 0 + at1 (b_1 m) 0 = beta * INR (count x i).
Proof.
  intros [Hlen Hx] Hi.
  assert (Hown : (own x i < T m)%nat) by (rewrite Forall_forall in Hx; apply Hx, nth_In; lia).
  assert (Hn : normaliser m x i = 1) by (unfold normaliser; now rewrite no_softmax).
  pose proof (preactivation_times_D m x i 1 ltac:(rewrite Hn; lra) Hx Hown 0) as H.
  rewrite Hn, !Rmult_1_l in H. rewrite H. clear H. unfold form. rewrite Rmult_1_l.
  unfold items, raw_weight, scores, indices, context. rewrite is_dot, no_softmax, map_map, map_map.
  rewrite <- (map_id x) at 3. 
  assert (Hc : forall f : nat -> R, combine (map f x) (map (fun s => s) x) = map (fun s => (f s, s)) x).
  { intros f. clear. induction x as [|s x IH]; [reflexivity|]. simpl. now rewrite IH. }
  rewrite Hc, map_map. clear Hc.
  assert (Hreads : forall s, reads m 0 s = reading m s).
  { intros s. unfold reads, reading, times, index_embedding. now rewrite is_dot. }
  rewrite (total_ext _ (fun s => alpha (own x i) + (if (s =? own x i)%nat then beta else 0))).
  - rewrite total_by_count, Hreads. pose proof (bias (own x i) Hown). unfold count. fold (own x i). rewrite Hlen. lra.
  - intros s Hs. rewrite Forall_forall in Hx. rewrite Hreads, Rmult_1_l. apply relation; [exact Hown|now apply Hx].
Qed.

Theorem relations_count : counts_by m (fun _ => 1).
Proof.
  intros x Hx i Hi c Hc Hne.
  destruct classes_are_counts as [Hcl Hfc]. destruct readout as [HW Hb].
  assert (Hk : (1 <= count x i <= L m)%nat).
  { destruct Hx as [Hlen _]. unfold count. split.
    - apply count_occ_In, nth_In. lia.
    - rewrite <- Hlen. apply count_occ_bound. }
  assert (Hlogit : forall j, (j < L m)%nat ->
    logit m x i j = 2 * INR (j + 1) * INR (count x i) - INR (j + 1) * INR (j + 1)).
  { intros j Hj. unfold logit. rewrite one_neuron. cbn [sum].
    unfold hidden. rewrite preactivation_is_count by assumption.
    rewrite Rmax_right by (apply Rmult_le_pos; [lra|apply pos_INR]).
    rewrite HW, Hb. unfold W_2_of, b_2_of. rewrite at2_by, at1_by by lia. field. lra. }
  rewrite !Hlogit by lia. rewrite Hfc in *.
  replace (count x i - 1 + 1)%nat with (count x i) by lia.
  set (k := count x i) in *. set (j := (c + 1)%nat) in *.
  pose proof (squared_distance k j ltac:(lia)) as Hsq.
  lra.
Qed.
End Relations.

(* ---- A-4.2: one-hot tokens, d >= T ------------------------------------------------------------------------------------------ *)

Definition one_hot_model (T L d : nat) : model := {|
  kind := Dot; softmax := false; T := T; L := L; d := d; p := 1; classes := L; first_count := 1;
  E := matrix_by T d delta; e_BOS := []; A := [];
  W_Q := matrix_by d d (fun i j => sqrt (INR d) * delta i j); W_K := matrix_by d d delta;
  W_1 := matrix_by d 1 (fun _ _ => 1); b_1 := vector_by 1 (fun _ => -1);
  W_2 := W_2_of L 1; b_2 := b_2_of L |}.

Theorem relation_counting (T L d : nat) : (1 <= d)%nat -> (T <= d)%nat ->
  well_shaped (one_hot_model T L d) /\ counts_by (one_hot_model T L d) (fun _ => 1).
Proof.
  intros Hd HT. set (m := one_hot_model T L d).
  assert (Hsqrt : 0 < sqrt (INR d)) by (apply sqrt_lt_R0, lt_0_INR; lia).
  assert (Hread : forall t, (t < T)%nat -> reading m t = 1).
  { intros t Ht. unfold reading, times. cbn [Model.d m one_hot_model W_1].
    rewrite (sum_ext _ _ (fun j => delta t j * 1)); [now rewrite sum_delta by lia|].
    intros j Hj. unfold embedding. cbn [E one_hot_model m]. rewrite !at2_by by lia. reflexivity. }
  split.
  - refine (conj (shape2_by _ _ _) (conj (conj (shape2_by _ _ _) (shape2_by _ _ _)) (conj (shape2_by _ _ _)
      (conj (shape1_by _ _) (conj (shape2_by _ _ _) (conj (shape1_by _ _) _)))))). cbn. lia.
  - apply (relations_count m (fun _ => 0) 1); try reflexivity; try (split; reflexivity); try lra.
    + cbn [Model.T m one_hot_model]. intros t s Ht Hs. rewrite Hread, Rmult_1_r, Rplus_0_l by assumption.
      unfold score, root. cbn [Model.d kind m one_hot_model W_Q W_K].
      rewrite (sum_ext _ _ (fun c => sqrt (INR d) * (delta t c * delta s c))).
      * rewrite sum_scale, sum_delta by lia. unfold delta. rewrite Nat.eqb_sym. field_simplify; [|lra].
        rewrite Nat.eqb_sym. destruct (s =? t)%nat; field; lra.
      * intros c Hc. unfold times. cbn [Model.d m one_hot_model].
        rewrite (sum_ext _ _ (fun j => delta t j * (sqrt (INR d) * delta j c))), sum_delta by
          (try lia; intros j Hj; unfold embedding; cbn [E one_hot_model m]; rewrite !at2_by by lia; reflexivity).
        rewrite (sum_ext _ _ (fun j => delta s j * delta j c)), sum_delta by
          (try lia; intros j Hj; unfold embedding; cbn [E one_hot_model m]; rewrite !at2_by by lia; reflexivity). lra.
    + cbn [Model.T m one_hot_model]. intros t Ht. rewrite Hread by assumption. cbn [b_1 m one_hot_model]. rewrite at1_by by lia. lra.
Qed.

(* ---- R2: one dimension less ---------------------------------------------------------------------------------------------------- *)

(* The first T - 1 tokens are one-hot, the last is minus their sum. The neuron reads 1 from each of them, and -(T - 1)
   from the last. All numbers are rational but for the factor sqrt d, which the scores are divided by again. *)
Definition less_beta (T L : nat) : R := INR T * (INR T - 2) / INR L.
Definition less_token (T t j : nat) : R := if (t =? T - 1)%nat then -1 else delta t j.
Definition less_scores (T L i j : nat) : R := less_beta T L * delta i j - (INR T - 1) / INR L.

Definition one_dimension_less_model (T L : nat) : model := {|
  kind := Dot; softmax := false; T := T; L := L; d := T - 1; p := 1; classes := L; first_count := 1;
  E := matrix_by T (T - 1) (less_token T); e_BOS := []; A := [];
  W_Q := matrix_by (T - 1) (T - 1) (fun i j => sqrt (INR (T - 1)) * less_scores T L i j);
  W_K := matrix_by (T - 1) (T - 1) delta;
  W_1 := matrix_by (T - 1) 1 (fun _ _ => 1); b_1 := vector_by 1 (fun _ => INR T - 2);
  W_2 := W_2_of L (less_beta T L); b_2 := b_2_of L |}.

(* A token times a vector: one entry, or minus the sum of all. *)
Lemma less_token_sum (T t : nat) (f : nat -> R) : (t < T)%nat ->
  sum (T - 1) (fun j => less_token T t j * f j) = if (t =? T - 1)%nat then - sum (T - 1) f else f t.
Proof.
  intros Ht. unfold less_token. destruct (Nat.eqb_spec t (T - 1)) as [->|Hne].
  - rewrite sum_scale. lra.
  - apply sum_delta. lia.
Qed.

Theorem one_dimension_less (T L : nat) : (3 <= T)%nat -> (1 <= L)%nat ->
  well_shaped (one_dimension_less_model T L) /\ counts_by (one_dimension_less_model T L) (fun _ => 1).
Proof.
  intros HT HL. set (m := one_dimension_less_model T L).
  assert (HTR : 3 <= INR T) by (replace 3 with (INR 3) by (simpl; lra); now apply le_INR).
  assert (HLR : 0 < INR L) by (apply lt_0_INR; lia).
  assert (Hd : INR (T - 1) = INR T - 1) by (rewrite minus_INR by lia; simpl; lra).
  assert (Hsqrt : 0 < sqrt (INR (T - 1))) by (apply sqrt_lt_R0; lra).
  assert (Hbeta : 0 < less_beta T L) by (unfold less_beta; apply Rdiv_lt_0_compat; [nra|lra]).
  assert (Hemb : forall t j, (t < T)%nat -> (j < T - 1)%nat -> embedding m t j = less_token T t j)
    by (intros t j Ht Hj; unfold embedding; cbn [E one_dimension_less_model m]; now rewrite at2_by by lia).
  assert (Htimes : forall t W c, (t < T)%nat ->
    times m (embedding m t) W c = if (t =? T - 1)%nat then - sum (T - 1) (fun j => at2 W j c) else at2 W t c).
  { intros t W c Ht. unfold times. cbn [Model.d kind m one_dimension_less_model].
    rewrite <- (less_token_sum T t (fun j => at2 W j c) Ht). apply sum_ext. intros j Hj. now rewrite Hemb by lia. }
  assert (Hread : forall t, (t < T)%nat -> reading m t = if (t =? T - 1)%nat then - (INR T - 1) else 1).
  { intros t Ht. unfold reading. rewrite Htimes by assumption. cbn [W_1 m one_dimension_less_model].
    destruct (Nat.eqb_spec t (T - 1)) as [_|Hne]; [|now rewrite at2_by by lia].
    rewrite (sum_ext _ _ (fun _ => 1)) by (intros j Hj; now rewrite at2_by by lia).
    rewrite sum_const, Hd. lra. }
  assert (Hquery : forall t c, (t < T)%nat -> (c < T - 1)%nat -> times m (embedding m t) (W_Q m) c =
    sqrt (INR (T - 1)) * if (t =? T - 1)%nat then 1 / INR L else less_scores T L t c).
  { intros t c Ht Hc. rewrite Htimes by assumption. cbn [W_Q m one_dimension_less_model].
    destruct (Nat.eqb_spec t (T - 1)) as [_|Hne]; [|now rewrite at2_by by lia].
    rewrite (sum_ext _ _ (fun j => sqrt (INR (T - 1)) * (less_beta T L * delta j c + - ((INR T - 1) / INR L)))).
    - rewrite sum_scale, sum_plus, sum_const, Hd.
      rewrite (sum_delta_right (T - 1) c (fun _ => less_beta T L)) by assumption. unfold less_beta. field. lra.
    - intros j Hj. rewrite at2_by by lia. unfold less_scores. lra. }
  assert (Hkey : forall s c, (s < T)%nat -> (c < T - 1)%nat -> times m (embedding m s) (W_K m) c = less_token T s c).
  { intros s c Hs Hc. rewrite Htimes by assumption. cbn [W_K m one_dimension_less_model]. unfold less_token.
    destruct (Nat.eqb_spec s (T - 1)) as [_|Hne]; [|now rewrite at2_by by lia].
    rewrite (sum_ext _ _ (fun j => 1 * delta j c)) by (intros j Hj; rewrite at2_by by lia; lra).
    rewrite (sum_delta_right (T - 1) c (fun _ => 1)) by assumption. lra. }
  assert (Hscore : forall t s, (t < T)%nat -> (s < T)%nat -> score m (embedding m t) (embedding m s) =
    if (t =? T - 1)%nat then (if (s =? T - 1)%nat then - (INR T - 1) / INR L else 1 / INR L)
    else if (s =? T - 1)%nat then 1 / INR L else less_scores T L t s).
  { intros t s Ht Hs. unfold score, root. cbn [Model.d kind m one_dimension_less_model].
    rewrite (sum_ext _ _ (fun c => sqrt (INR (T - 1)) * (less_token T s c *
      if (t =? T - 1)%nat then 1 / INR L else less_scores T L t c))).
    - rewrite sum_scale, less_token_sum by assumption. set (r := sqrt (INR (T - 1))) in *.
      destruct (Nat.eqb_spec t (T - 1)) as [_|Hne], (Nat.eqb_spec s (T - 1)) as [_|Hne'].
      + rewrite sum_const, Hd. field. lra.
      + field. lra.
      + rewrite (sum_ext _ _ (fun c => less_beta T L * delta t c + - ((INR T - 1) / INR L))) by (intros; unfold less_scores; lra).
        rewrite sum_plus, sum_const, Hd.
        rewrite (sum_ext _ (fun c => less_beta T L * delta t c) (fun c => delta t c * less_beta T L)) by (intros; lra).
        rewrite (sum_delta (T - 1) t (fun _ => less_beta T L)) by lia. unfold less_beta. field. lra.
      + field. lra.
    - intros c Hc. rewrite Hquery, Hkey by assumption. lra. }
  split.
  - refine (conj (shape2_by _ _ _) (conj (conj (shape2_by _ _ _) (shape2_by _ _ _)) (conj (shape2_by _ _ _)
      (conj (shape1_by _ _) (conj (shape2_by _ _ _) (conj (shape1_by _ _) _)))))). cbn. lia.
  - apply (relations_count m (fun t => if (t =? T - 1)%nat then 1 / INR L else - (INR T - 1) / INR L) (less_beta T L));
      try reflexivity; try (split; reflexivity); try assumption.
    + cbn [Model.T m one_dimension_less_model]. intros t s Ht Hs. rewrite Hscore, Hread by assumption.
      unfold less_scores, delta.
      destruct (Nat.eqb_spec t (T - 1)) as [Ht1|Ht1], (Nat.eqb_spec s (T - 1)) as [Hs1|Hs1];
        destruct (Nat.eqb_spec s t) as [Hst|Hst]; destruct (Nat.eqb_spec t s) as [Hts|Hts]; try lia;
        unfold less_beta; field; lra.
    + cbn [Model.T m one_dimension_less_model]. intros t Ht. rewrite Hread by assumption.
      cbn [b_1 Model.L m one_dimension_less_model]. rewrite at1_by by lia.
      destruct (t =? T - 1)%nat; field; lra.
Qed.
