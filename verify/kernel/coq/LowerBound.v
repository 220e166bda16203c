(* A lower bound for all weights (R1): a dot model with softmax that counts, for some T >= 2 and L >= 2, has p neurons
   with T < 2^p. Which neurons are on where all tokens are t must differ from token to token, and of the 2^p patterns
   "none" and "only the first" cannot both occur. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model Sums Reduction.
Import ListNotations.
Open Scope R_scope.

Section LowerBound.
Variable m : model.
Hypothesis is_dot : kind m = Dot.
Hypothesis has_softmax : softmax m = true.
Hypothesis shapes : well_shaped m.
Hypothesis L_at_least_2 : (2 <= L m)%nat.
Hypothesis it_counts : counts m.

(* One t, and s at all other positions. *)
Definition one_of (t s : nat) : list nat := t :: repeat s (L m - 1).

(* What neuron n computes at position 0 of a sequence before its ReLU, and where all tokens are t. *)
Definition preactivation (x : list nat) (n : nat) : R := times m (mixed_token m x 0) (W_1 m) n + at1 (b_1 m) n.
Definition alone (t n : nat) : R := 2 * reads m n t + at1 (b_1 m) n.

Lemma total_repeat {X : Type} (f : X -> R) (y : X) (k : nat) : total (map f (repeat y k)) = INR k * f y.
Proof.
  induction k as [|k IH]; [simpl; lra|]. rewrite S_INR. cbn [repeat map total fold_right].
  fold (total (map f (repeat y k))). rewrite IH. lra.
Qed.

Lemma one_of_is_sequence (t s : nat) : (t < T m)%nat -> (s < T m)%nat -> is_sequence m (one_of t s).
Proof.
  intros Ht Hs. split.
  - unfold one_of. simpl. rewrite repeat_length. lia.
  - constructor; [exact Ht|]. apply Forall_forall. intros y Hy. apply repeat_spec in Hy. now subst.
Qed.

(* At a position of t whose other slots hold s, every neuron lies between its two values for t alone and s alone, at
   the same place for all neurons. *)
Lemma between (t s : nat) : (t < T m)%nat -> (s < T m)%nat ->
  exists l, 0 <= l <= 1 /\ forall n, preactivation (one_of t s) n = (1 - l) * alone t n + l * alone s n.
Proof.
  intros Ht Hs.
  set (w := fun k => exp (score m (embedding m t) (embedding m k))).
  assert (Hw : forall k, 0 < w k) by (intros; apply exp_pos).
  pose proof (Hw t) as Hwt. pose proof (Hw s) as Hws.
  pose proof (pos_INR (L m - 1)) as HM. set (M := INR (L m - 1)) in *.
  assert (HD : 0 < w t + M * w s) by nra.
  assert (Hn : normaliser m (one_of t s) 0 = w t + M * w s).
  { unfold normaliser, scores, context. rewrite has_softmax, is_dot, !map_map. unfold one_of at 2.
    cbn [map total fold_right]. change (nth 0 (one_of t s) O) with t. fold (w t).
    f_equal. exact (total_repeat w s (L m - 1)). }
  exists (M * w s / (2 * (w t + M * w s))). split.
  - split; [apply Rmult_le_pos; [nra|left; apply Rinv_0_lt_compat; lra]|].
    apply Rmult_le_reg_r with (2 * (w t + M * w s)); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; nra.
  - intros n. unfold preactivation.
    destruct (one_of_is_sequence t s Ht Hs) as [_ Hall].
    pose proof (preactivation_times_D m (one_of t s) 0 1 ltac:(rewrite Hn; exact HD) Hall Ht n) as H.
    rewrite Hn, Rmult_1_l in H. unfold form in H. change (own (one_of t s) 0) with t in H.
    assert (Hitems : total (map (fun '(a, k) => a * reads m n k) (items m (one_of t s) 0 1))
      = w t * reads m n t + M * (w s * reads m n s)).
    { unfold items, raw_weight, scores, context, indices. rewrite has_softmax, is_dot, !map_map.
      change (nth 0 (one_of t s) O) with t.
      assert (Hc : forall (f : nat -> R) l, map (fun '(a, k) => a * reads m n k) (combine (map f l) l) = map (fun k => f k * reads m n k) l).
      { intros f l. induction l as [|y l IH]; [reflexivity|]. simpl. now rewrite IH. }
      rewrite Hc. unfold one_of. cbn [map total fold_right].
      fold (total (map (fun k => 1 * exp (score m (embedding m t) (embedding m k)) * reads m n k) (repeat s (L m - 1)))).
      rewrite (total_repeat (fun k => 1 * exp (score m (embedding m t) (embedding m k)) * reads m n k)).
      fold (w t) (w s) M. ring. }
    rewrite Hitems in H. unfold alone.
    apply Rmult_eq_reg_l with (w t + M * w s); [|lra]. rewrite H. field. lra.
Qed.

Lemma between_itself (t n : nat) : (t < T m)%nat -> preactivation (one_of t t) n = alone t n.
Proof. intros Ht. destruct (between t t Ht Ht) as [l [_ H]]. rewrite H. lra. Qed.

Lemma count_alone (t : nat) : count (one_of t t) 0 = L m.
Proof.
  unfold count, one_of. cbn [nth]. rewrite count_occ_cons_eq by reflexivity.
  assert (H : forall k, count_occ Nat.eq_dec (repeat t k) t = k).
  { induction k as [|k IH]; [reflexivity|]. cbn [repeat]. rewrite count_occ_cons_eq by reflexivity. now rewrite IH. }
  rewrite H. lia.
Qed.

Lemma count_one (t s : nat) : t <> s -> count (one_of t s) 0 = 1%nat.
Proof.
  intros Hne. unfold count, one_of. cbn [nth]. rewrite count_occ_cons_eq by reflexivity. f_equal.
  induction (L m - 1)%nat as [|k IH]; [reflexivity|]. cbn [repeat]. rewrite count_occ_cons_neq; auto.
Qed.

(* If the rectified neurons mix as well, then count 1 is answered as count L is. *)
Lemma hidden_does_not_mix (t s : nat) (mu : R) : (t < T m)%nat -> (s < T m)%nat -> t <> s -> 0 <= mu <= 1 ->
  (forall n, (n < p m)%nat ->
    Rmax 0 (preactivation (one_of t s) n) = (1 - mu) * Rmax 0 (alone t n) + mu * Rmax 0 (alone s n)) -> False.
Proof.
  intros Ht Hs Hne Hmu Hmix.
  assert (Hsize : (first_count m <= 1 /\ L m < classes m + first_count m)%nat) by (unfold well_shaped in shapes; rewrite is_dot in shapes; tauto).
  set (one := (1 - first_count m)%nat). set (all := (L m - first_count m)%nat).
  assert (Hlogit : forall c, logit m (one_of t s) 0 c
    = (1 - mu) * logit m (one_of t t) 0 c + mu * logit m (one_of s s) 0 c).
  { intros c. unfold logit, hidden.
    rewrite (sum_ext (p m) _ (fun n => (1 - mu) * (Rmax 0 (alone t n) * at2 (W_2 m) n c)
       + mu * (Rmax 0 (alone s n) * at2 (W_2 m) n c))).
    - rewrite sum_plus, !sum_scale.
      rewrite (sum_ext (p m) (fun n => Rmax 0 (times m (mixed_token m (one_of t t) 0) (W_1 m) n + at1 (b_1 m) n) * at2 (W_2 m) n c)
        (fun n => Rmax 0 (alone t n) * at2 (W_2 m) n c)) by (intros n _; now rewrite <- (between_itself t n Ht)).
      rewrite (sum_ext (p m) (fun n => Rmax 0 (times m (mixed_token m (one_of s s) 0) (W_1 m) n + at1 (b_1 m) n) * at2 (W_2 m) n c)
        (fun n => Rmax 0 (alone s n) * at2 (W_2 m) n c)) by (intros n _; now rewrite <- (between_itself s n Hs)).
      lra.
    - intros n Hn. change (times m (mixed_token m (one_of t s) 0) (W_1 m) n + at1 (b_1 m) n) with (preactivation (one_of t s) n).
      rewrite Hmix by assumption. lra. }
  pose proof (it_counts _ (one_of_is_sequence t s Ht Hs) O ltac:(lia) all) as H1. rewrite count_one in H1 by assumption.
  pose proof (it_counts _ (one_of_is_sequence t t Ht Ht) O ltac:(lia) one) as H2. rewrite count_alone in H2.
  pose proof (it_counts _ (one_of_is_sequence s s Hs Hs) O ltac:(lia) one) as H3. rewrite count_alone in H3.
  fold one in H1. fold all in H2, H3. rewrite !Hlogit in H1.
  specialize (H1 ltac:(lia) ltac:(lia)). specialize (H2 ltac:(lia) ltac:(lia)). specialize (H3 ltac:(lia) ltac:(lia)).
  nra.
Qed.

(* ---- Which neurons are on where all tokens are t --------------------------------------------------------------------- *)

Definition is_on (t n : nat) : bool := if Rlt_dec 0 (alone t n) then true else false.
Definition pattern (t : nat) : list bool := map (is_on t) (seq 0 (p m)).

Lemma pattern_at (t n : nat) (l : list bool) : (n < p m)%nat -> pattern t = l -> is_on t n = nth n l false.
Proof.
  intros Hn <-. unfold pattern. rewrite (nth_indep _ _ (is_on t O)) by now rewrite map_length, seq_length.
  now rewrite map_nth, seq_nth.
Qed.

Lemma patterns_differ (t s : nat) : (t < T m)%nat -> (s < T m)%nat -> pattern t = pattern s -> t = s.
Proof.
  intros Ht Hs Hp. destruct (Nat.eq_dec t s) as [|Hne]; [assumption|exfalso].
  destruct (between t s Ht Hs) as [l [Hl Hb]].
  apply (hidden_does_not_mix t s l Ht Hs Hne Hl). intros n Hn. rewrite Hb.
  pose proof (pattern_at t n _ Hn Hp) as Hon. rewrite <- (pattern_at s n _ Hn eq_refl) in Hon.
  unfold is_on in Hon. destruct (Rlt_dec 0 (alone t n)), (Rlt_dec 0 (alone s n)); try discriminate.
  - rewrite !Rmax_right by nra. lra.
  - rewrite !Rmax_left by nra. lra.
Qed.

(* No neuron on for t, and only the first for s: on the way only that one is ever on. *)
Lemma not_none_and_one (t s : nat) : (t < T m)%nat -> (s < T m)%nat -> (1 <= p m)%nat ->
  pattern t = repeat false (p m) -> pattern s = true :: repeat false (p m - 1) -> False.
Proof.
  intros Ht Hs Hp Hnone Hone.
  assert (Hoff_t : forall n, (n < p m)%nat -> alone t n <= 0).
  { intros n Hn. pose proof (pattern_at t n _ Hn Hnone) as H. rewrite nth_repeat in H. unfold is_on in H.
    destruct (Rlt_dec 0 (alone t n)); [discriminate|lra]. }
  assert (Hoff_s : forall n, (1 <= n < p m)%nat -> alone s n <= 0).
  { intros n Hn. pose proof (pattern_at s n _ (proj2 Hn) Hone) as H. destruct n as [|n]; [lia|]. cbn [nth] in H.
    rewrite nth_repeat in H. unfold is_on in H. destruct (Rlt_dec 0 (alone s (S n))); [discriminate|lra]. }
  assert (Hon : 0 < alone s 0).
  { pose proof (pattern_at s 0 _ ltac:(lia) Hone) as H. unfold is_on in H. cbn [nth] in H.
    destruct (Rlt_dec 0 (alone s 0)); [assumption|discriminate]. }
  assert (Hne : t <> s) by (intros ->; specialize (Hoff_t O ltac:(lia)); lra).
  destruct (between t s Ht Hs) as [l [Hl Hb]].
  set (h := Rmax 0 (preactivation (one_of t s) 0)).
  assert (Hh : 0 <= h <= alone s 0).
  { split; [apply Rmax_l|]. apply Rmax_lub; [lra|]. rewrite Hb. specialize (Hoff_t O ltac:(lia)). nra. }
  apply (hidden_does_not_mix t s (h / alone s 0) Ht Hs Hne).
  - split; [apply Rmult_le_pos; [lra|left; now apply Rinv_0_lt_compat]|].
    apply Rmult_le_reg_r with (1 := Hon). unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra.
  - intros n Hn. specialize (Hoff_t n Hn). rewrite (Rmax_left 0 (alone t n)) by lra.
    destruct n as [|n].
    + fold h. rewrite (Rmax_right 0 (alone s 0)) by lra. field. lra.
    + specialize (Hoff_s (S n) ltac:(lia)). rewrite (Rmax_left 0 (alone s (S n))) by lra.
      rewrite Hb, Rmax_left by nra. lra.
Qed.

(* ---- Counting the patterns ---------------------------------------------------------------------------------------------- *)

Fixpoint all_patterns (n : nat) : list (list bool) :=
  match n with
  | O => [[]]
  | S k => map (cons false) (all_patterns k) ++ map (cons true) (all_patterns k)
  end.

Lemma length_all_patterns (n : nat) : length (all_patterns n) = (2 ^ n)%nat.
Proof. induction n as [|n IH]; [reflexivity|]. cbn [all_patterns]. rewrite app_length, !map_length, IH. simpl. lia. Qed.

Lemma in_all_patterns (l : list bool) : In l (all_patterns (length l)).
Proof.
  induction l as [|[|] l IH]; [now left| |]; cbn [length all_patterns]; apply in_or_app; [right|left]; now apply in_map.
Qed.

Definition patterns : list (list bool) := map pattern (seq 0 (T m)).

Lemma length_pattern (t : nat) : length (pattern t) = p m.
Proof. unfold pattern. now rewrite map_length, seq_length. Qed.

Lemma patterns_are_distinct : NoDup patterns.
Proof.
  unfold patterns. assert (H : forall l, NoDup l -> (forall t, In t l -> (t < T m)%nat) -> NoDup (map pattern l)).
  { induction 1 as [|t l Ht Hl IH]; intros Hr; cbn [map]; constructor.
    - intros Hin. apply in_map_iff in Hin as [s [Hp Hs]]. apply Ht.
      rewrite <- (patterns_differ s t (Hr s (or_intror Hs)) (Hr t (or_introl eq_refl)) Hp). exact Hs.
    - apply IH. intros s Hs. apply Hr. now right. }
  apply H; [apply seq_NoDup|]. intros t Ht. apply in_seq in Ht. lia.
Qed.

Lemma patterns_are_patterns : incl patterns (all_patterns (p m)).
Proof.
  intros l Hl. unfold patterns in Hl. apply in_map_iff in Hl as [t [<- _]].
  rewrite <- (length_pattern t). apply in_all_patterns.
Qed.

Theorem neurons_for_counting : (2 <= T m)%nat -> (T m < 2 ^ p m)%nat.
Proof.
  intros HT.
  assert (Hlen : length patterns = T m) by (unfold patterns; now rewrite map_length, seq_length).
  pose proof (NoDup_incl_length patterns_are_distinct patterns_are_patterns) as Hle.
  rewrite length_all_patterns, Hlen in Hle.
  destruct (Nat.eq_dec (T m) (2 ^ p m)) as [Heq|]; [exfalso|lia].
  assert (Hp : (1 <= p m)%nat) by (destruct (p m); [simpl in Heq; lia|lia]).
  assert (Hall : incl (all_patterns (p m)) patterns).
  { apply NoDup_length_incl; [exact patterns_are_distinct| |exact patterns_are_patterns].
    rewrite length_all_patterns, Hlen. lia. }
  assert (Hin : forall l, length l = p m -> exists t, (t < T m)%nat /\ pattern t = l).
  { intros l Hl. pose proof (in_all_patterns l) as H. rewrite Hl in H. apply Hall in H.
    unfold patterns in H. apply in_map_iff in H as [t [Hpt Ht]]. apply in_seq in Ht. exists t. split; [lia|exact Hpt]. }
  destruct (Hin (repeat false (p m))) as [t [Ht Hnone]]; [apply repeat_length|].
  destruct (Hin (true :: repeat false (p m - 1))) as [s [Hs Hone]]; [simpl; rewrite repeat_length; lia|].
  exact (not_none_and_one t s Ht Hs Hp Hnone Hone).
Qed.
End LowerBound.
