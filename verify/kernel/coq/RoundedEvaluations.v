(* Evaluations that do lose something: the dot models of A-4.2 where scores are only about 1, and sums are rounded.

   Every operation may be off by u times its exact value and by eta; a sum of n products is then off by at most
   ((1 + u)^(2n) - 1) times the sum of the absolute values, and by eta for each operation (dots_are_near). Layer by layer
   that is at most logit_error for each logit (rounded_counts). In floats this covers a multiplication by the rounded
   reciprocal of sqrt d, for every d (floats_count_rounded). *)

From Coq Require Import Reals List Arith ZArith Lia Lra Permutation.
From Flocq Require Import Core Relative.
From Weightproof Require Import Model Sums Regions General Evaluations.
Import ListNotations.
Open Scope R_scope.

Section Rounded.
Variable result : R -> R -> Prop.
Variable roots : nat -> R -> Prop.
Variable may_multiply : Prop.
Variables u eta : R.
Hypothesis u_nonnegative : 0 <= u.
Hypothesis eta_nonnegative : 0 <= eta.
Hypothesis near : forall v r, result v r -> Rabs (r - v) <= u * Rabs v + eta.

(* ---- Sums --------------------------------------------------------------------------------------------------------------------- *)

Definition growth (n : nat) : R := (1 + u) ^ (2 * n).
(* What a sum of n products, of absolute values `size` together, may be off by. *)
Definition sum_error (n : nat) (size : R) : R := (growth n - 1) * size + (2 * INR n - 1) * growth n * eta.

Lemma growth_grows (m n : nat) : (m <= n)%nat -> 1 <= growth m <= growth n.
Proof. intros H. unfold growth. split; [apply pow_R1_Rle; lra|apply Rle_pow; [lra|lia]]. Qed.

Lemma growth_succ (n : nat) : growth (S n) = (1 + u) * (1 + u) * growth n.
Proof. unfold growth. replace (2 * S n)%nat with (S (S (2 * n))) by lia. simpl. ring. Qed.

Lemma size_nonnegative (l : list (R * R)) : 0 <= size_of_dots l.
Proof.
  unfold size_of_dots. induction l as [|[a b] l IH]; [cbn; lra|].
  change (0 <= Rabs (a * b) + total (map (fun '(a, b) => Rabs (a * b)) l)). pose proof (Rabs_pos (a * b)). lra.
Qed.

Lemma value_at_most_size (l : list (R * R)) : Rabs (value_of_dots l) <= size_of_dots l.
Proof.
  unfold value_of_dots, size_of_dots. induction l as [|[a b] l IH]; [cbn; rewrite Rabs_R0; lra|].
  change (Rabs (a * b + total (map (fun '(a, b) => a * b) l)) <= Rabs (a * b) + total (map (fun '(a, b) => Rabs (a * b)) l)).
  apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

(* One more operation on numbers that are off by e together. *)
Lemma one_more (v w r e size j : R) (n : nat) : result w r -> Rabs (w - v) <= e -> Rabs v <= size -> 0 <= j ->
  e <= (growth n - 1) * size + j * growth n * eta -> Rabs (r - v) <= (growth (S n) - 1) * size + (j + 1) * growth (S n) * eta.
Proof.
  intros H He Hv Hj Hbound. apply near in H. pose proof (growth_grows 0 n ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl in Hg.
  pose proof (Rabs_pos v) as Hv0. pose proof (Rabs_pos (w - v)) as He0.
  assert (Hw : Rabs w <= size + e) by (replace w with (v + (w - v)) by ring; apply Rle_trans with (1 := Rabs_triang _ _); lra).
  assert (Hr : Rabs (r - v) <= u * (size + e) + eta + e).
  { replace (r - v) with ((r - w) + (w - v)) by ring. apply Rle_trans with (1 := Rabs_triang _ _).
    assert (u * Rabs w <= u * (size + e)) by now apply Rmult_le_compat_l. lra. }
  apply Rle_trans with (1 := Hr). rewrite growth_succ. set (g := growth n) in *.
  assert (H1 : (1 + u) * e <= (1 + u) * ((g - 1) * size + j * g * eta)) by (apply Rmult_le_compat_l; lra).
  assert (H2 : (1 + u) * ((g - 1) * size) + u * size <= ((1 + u) * (1 + u) * g - 1) * size).
  { assert (0 <= u * ((1 + u) * g) * size) by (repeat apply Rmult_le_pos; lra). lra. }
  assert (H3 : (1 + u) * (j * g * eta) + eta <= (j + 1) * ((1 + u) * (1 + u) * g) * eta).
  { assert (0 <= g * eta) by (apply Rmult_le_pos; lra). assert (eta <= g * eta) by nra.
    assert (0 <= u * (j * ((1 + u) * (g * eta)))) by (repeat apply Rmult_le_pos; lra).
    assert (g * eta <= (1 + u) * (1 + u) * (g * eta)) by nra. lra. }
  lra.
Qed.

Lemma one_operation (v r : R) : result v r -> Rabs (r - v) <= sum_error 1 (Rabs v).
Proof.
  intros H. apply near in H. apply Rle_trans with (1 := H). unfold sum_error, growth. cbn [pow INR Nat.mul Nat.add].
  pose proof (Rabs_pos v) as Hv. assert (0 <= u * Rabs v) by now apply Rmult_le_pos. assert (0 <= u * eta) by now apply Rmult_le_pos.
  assert (0 <= u * (u * Rabs v)) by now apply Rmult_le_pos. assert (0 <= u * (u * eta)) by now apply Rmult_le_pos. lra.
Qed.

Lemma sum_error_grows (m n : nat) (size : R) : (1 <= m <= n)%nat -> 0 <= size -> sum_error m size <= sum_error n size.
Proof.
  intros [Hm Hmn] Hs. unfold sum_error. pose proof (growth_grows m n Hmn) as [Hg1 Hg]. apply le_INR in Hm, Hmn. simpl in Hm.
  assert (0 <= growth n * eta) by (apply Rmult_le_pos; lra). assert (growth m * eta <= growth n * eta) by now apply Rmult_le_compat_r.
  assert ((2 * INR m - 1) * (growth m * eta) <= (2 * INR n - 1) * (growth n * eta)) by (apply Rmult_le_compat; try lra; apply Rmult_le_pos; lra).
  nra.
Qed.

Lemma weaker (n : nat) (k size more : R) : 0 <= k -> 0 <= more ->
  (growth n - 1) * size + (2 * k + 1) * growth n * eta <= (growth n - 1) * (more + size) + (2 * k + 2) * growth n * eta.
Proof.
  intros Hk Hm. pose proof (growth_grows 0 n ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl pow in Hg.
  assert (0 <= growth n * eta) by (apply Rmult_le_pos; lra). assert (0 <= (growth n - 1) * more) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma dots_are_near (l : list (R * R)) (r : R) : dots result l r -> l <> [] ->
  Rabs (r - value_of_dots l) <= sum_error (length l) (size_of_dots l).
Proof.
  induction 1 as [|a b r H|k l r s t Hk Hl Hdk IHk Hdl IHl H|a b l r t Hd IH H|k l r Hp Hd IH]; intros Hne; [congruence| | | |].
  - unfold value_of_dots, size_of_dots. cbn [map total fold_right length]. rewrite !Rplus_0_r. now apply one_operation.
  - specialize (IHk Hk). specialize (IHl Hl). pose proof (size_nonnegative k) as Hsk. pose proof (size_nonnegative l) as Hsl.
    assert (Hv : value_of_dots (k ++ l) = value_of_dots k + value_of_dots l) by (unfold value_of_dots; now rewrite map_app, total_app).
    assert (Hs : size_of_dots (k ++ l) = size_of_dots k + size_of_dots l) by (unfold size_of_dots; now rewrite map_app, total_app).
    pose proof (value_at_most_size (k ++ l)) as Hvs. rewrite Hv, Hs in *. rewrite app_length.
    destruct k as [|x k]; [congruence|]. destruct l as [|y l]; [congruence|]. cbn [length] in *.
    set (m := length k) in *. set (n := length l) in *. replace (S m + S n)%nat with (S (S (m + n))) by lia.
    pose proof (pos_INR m) as Hm0. pose proof (pos_INR n) as Hn0. unfold sum_error at 1.
    replace (2 * INR (S (S (m + n))) - 1) with (2 * INR m + 2 * INR n + 2 + 1) by (rewrite !S_INR, plus_INR; ring).
    refine (one_more _ (r + s) t _ _ (2 * INR m + 2 * INR n + 2) (S (m + n)) H (Rle_refl _) Hvs ltac:(lra) _).
    replace (r + s - (value_of_dots (x :: k) + value_of_dots (y :: l)))
      with ((r - value_of_dots (x :: k)) + (s - value_of_dots (y :: l))) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _).
    apply Rle_trans with (sum_error (S m) (size_of_dots (x :: k)) + sum_error (S n) (size_of_dots (y :: l))); [lra|].
    unfold sum_error. pose proof (growth_grows (S m) (S (m + n)) ltac:(lia)) as Hgm. pose proof (growth_grows (S n) (S (m + n)) ltac:(lia)) as Hgn.
    rewrite !S_INR. set (g := growth (S (m + n))) in *. set (gm := growth (S m)) in *. set (gn := growth (S n)) in *.
    assert (gm * eta <= g * eta) by (apply Rmult_le_compat_r; lra). assert (gn * eta <= g * eta) by (apply Rmult_le_compat_r; lra).
    assert (0 <= g * eta) by (apply Rmult_le_pos; lra).
    assert ((2 * (INR m + 1) - 1) * (gm * eta) <= (2 * (INR m + 1) - 1) * (g * eta)) by (apply Rmult_le_compat_l; lra).
    assert ((2 * (INR n + 1) - 1) * (gn * eta) <= (2 * (INR n + 1) - 1) * (g * eta)) by (apply Rmult_le_compat_l; lra).
    assert ((gm - 1) * size_of_dots (x :: k) <= (g - 1) * size_of_dots (x :: k)) by (apply Rmult_le_compat_r; lra).
    assert ((gn - 1) * size_of_dots (y :: l) <= (g - 1) * size_of_dots (y :: l)) by (apply Rmult_le_compat_r; lra). lra.
  - assert (Hv : value_of_dots ((a, b) :: l) = a * b + value_of_dots l) by reflexivity.
    assert (Hs : size_of_dots ((a, b) :: l) = Rabs (a * b) + size_of_dots l) by reflexivity.
    pose proof (value_at_most_size ((a, b) :: l)) as Hvs. pose proof (Rabs_pos (a * b)) as Hab. pose proof (size_nonnegative l) as Hsl.
    destruct l as [|x l].
    + assert (r = 0) as ->.
      { clear -Hd. remember (@nil (R * R)) as l eqn:Hl. induction Hd as [| | k l' ? ? ? Hk| |k l' r' Hp Hd IH]; try discriminate; try reflexivity.
        - apply app_eq_nil in Hl as [-> _]. congruence.
        - subst l'. apply IH. now apply Permutation_nil, Permutation_sym. }
      rewrite Rplus_0_r in H. unfold value_of_dots, size_of_dots. cbn [map total fold_right length]. rewrite !Rplus_0_r.
      now apply one_operation.
    + specialize (IH ltac:(discriminate)). rewrite Hv, Hs in *. cbn [length] in *.
      pose proof (pos_INR (length l)) as Hn0. unfold sum_error at 1.
      replace (2 * INR (S (S (length l))) - 1) with (2 * INR (length l) + 2 + 1) by (rewrite !S_INR; ring).
      refine (one_more _ (a * b + r) t _ _ (2 * INR (length l) + 2) (S (length l)) H (Rle_refl _) Hvs ltac:(lra) _).
      replace (a * b + r - (a * b + value_of_dots (x :: l))) with (r - value_of_dots (x :: l)) by ring.
      apply Rle_trans with (1 := IH). unfold sum_error. rewrite S_INR. replace (2 * (INR (length l) + 1) - 1) with (2 * INR (length l) + 1) by ring. now apply weaker.
  - assert (Hl : value_of_dots k = value_of_dots l) by (unfold value_of_dots; now apply total_permutation).
    assert (Hs : size_of_dots k = size_of_dots l) by (unfold size_of_dots; now apply total_permutation).
    rewrite <- Hl, <- Hs, <- (Permutation_length Hp). apply IH. intros ->. apply Permutation_nil in Hp. congruence.
Qed.

(* With a bias or the residual, added afterwards or as one more term. *)
Lemma dots_plus_are_near (l : list (R * R)) (b r : R) : dots_plus result l b r -> l <> [] ->
  Rabs (r - (value_of_dots l + b)) <= sum_error (S (length l)) (size_of_dots l + Rabs b).
Proof.
  intros [[y [Hy Hr]]|Hr] Hne.
  - apply dots_are_near in Hy; [|exact Hne]. pose proof (value_at_most_size l) as Hvs. pose proof (Rabs_pos b) as Hb.
    assert (Hn : (1 <= length l)%nat) by (destruct l; [congruence|simpl; lia]).
    unfold sum_error. rewrite S_INR. replace (2 * (INR (length l) + 1) - 1) with (2 * INR (length l) + 1) by ring.
    apply le_INR in Hn as HnR. simpl in HnR.
    refine (one_more _ (y + b) r _ _ (2 * INR (length l)) (length l) Hr (Rle_refl _) _ ltac:(lra) _).
    + apply Rle_trans with (1 := Rabs_triang _ _). lra.
    + replace (y + b - (value_of_dots l + b)) with (y - value_of_dots l) by ring. apply Rle_trans with (1 := Hy).
      unfold sum_error. apply Rle_trans with ((growth (length l) - 1) * size_of_dots l + 2 * INR (length l) * growth (length l) * eta).
      * pose proof (growth_grows 0 (length l) ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl pow in Hg.
        assert (0 <= growth (length l) * eta) by (apply Rmult_le_pos; lra). lra.
      * pose proof (growth_grows 0 (length l) ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl pow in Hg.
        assert (0 <= (growth (length l) - 1) * Rabs b) by (apply Rmult_le_pos; lra). lra.
  - apply dots_are_near in Hr; [|discriminate]. cbn [length] in Hr.
    change (value_of_dots ((1, b) :: l)) with (1 * b + value_of_dots l) in Hr.
    change (size_of_dots ((1, b) :: l)) with (Rabs (1 * b) + size_of_dots l) in Hr.
    rewrite Rmult_1_l, (Rplus_comm b), (Rplus_comm (Rabs b)) in Hr. exact Hr.
Qed.

Lemma sum_error_in_size (n : nat) (size more : R) : size <= more -> sum_error n size <= sum_error n more.
Proof.
  intros H. unfold sum_error. pose proof (growth_grows 0 n ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl pow in Hg.
  assert ((growth n - 1) * size <= (growth n - 1) * more) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* ---- The dot models of A-4.2, with scores about 1 ---------------------------------------------------------------------------------- *)

Section Family.
Variables root eps : R.
Variables T L d : nat.
Hypothesis L_at_least_1 : (1 <= L)%nat.
Hypothesis T_at_most_d : (T <= d)%nat.
Hypothesis root_positive : 0 < root.
Hypothesis eps_nonnegative : 0 <= eps.
Hypothesis keeps_integers : keeps result 1 (3 * (INR L * INR L)).
Hypothesis keeps_root : keeps result root root.
Hypothesis root_is_scaled : forall r, scaled result roots may_multiply d root r -> Rabs (r - 1) <= eps.

(* What the mixed token, the neuron and the logits may be off by. *)
Definition mixed_error : R := INR L * eps + sum_error (S L) (INR L * (1 + eps) + 1).
Definition neuron_error : R := mixed_error + sum_error (S d) (INR L + 2 + mixed_error).
Definition logit_error : R :=
  2 * INR L * neuron_error + sum_error 2 (2 * INR L * (INR L + neuron_error) + INR L * INR L).

Section Position.
Variable x : list nat.
Variable i : nat.
Hypothesis sequence : is_sequence (rooted_model root T L d) x.
Hypothesis i_in_range : (i < L)%nat.
Let t := nth i x O.
Let k := count_occ Nat.eq_dec x t.

Lemma L_real : 1 <= INR L.
Proof. apply le_INR in L_at_least_1. exact L_at_least_1. Qed.

Lemma zero_is_kept (r : R) : result 0 r -> r = 0.
Proof.
  intros H. replace 0 with (1 * IZR 0) in * by ring. apply keeps_integers; [|exact H].
  rewrite Rmult_0_r, Rabs_R0. pose proof L_real. nra.
Qed.

Lemma score_is_near (s : nat) (v r : R) : (s < L)%nat ->
  dots result (products d (fun c => root * delta t c) (delta (nth s x O))) v -> scaled result roots may_multiply d v r ->
  Rabs (r - delta t (nth s x O)) <= eps * delta t (nth s x O) /\ (delta t (nth s x O) = 0 -> r = 0).
Proof.
  intros Hs H Hr. apply (product_is_exact result root T L d) with (i := i) in H; try assumption. subst v.
  fold t in Hr. unfold delta in *. destruct (t =? nth s x O)%nat.
  - rewrite Rmult_1_r in *. split; [now apply root_is_scaled|lra].
  - rewrite !Rmult_0_r in *. enough (r = 0) as -> by (rewrite Rminus_0_r, Rabs_R0; lra).
    destruct Hr as [q [_ [Hr|[_ [inverse [_ Hr]]]]]]; apply zero_is_kept; [unfold Rdiv in Hr|]; now rewrite Rmult_0_l in Hr.
Qed.

Lemma mixed_error_nonnegative : 0 <= mixed_error.
Proof.
  unfold mixed_error, sum_error. pose proof L_real. pose proof (growth_grows 0 (S L) ltac:(lia)) as [_ Hg].
  unfold growth at 1 in Hg. simpl pow in Hg. rewrite S_INR.
  assert (0 <= INR L * eps) by (apply Rmult_le_pos; lra).
  assert (0 <= (growth (S L) - 1) * (INR L * (1 + eps) + 1)) by (apply Rmult_le_pos; nra).
  assert (0 <= (2 * (INR L + 1) - 1) * growth (S L) * eta) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra.
Qed.

Lemma mixed_is_near (c : nat) (scores : nat -> R) (r : R) : (c < d)%nat ->
  (forall s, (s < L)%nat -> Rabs (scores s - delta t (nth s x O)) <= eps * delta t (nth s x O)
    /\ (delta t (nth s x O) = 0 -> scores s = 0)) ->
  dots_plus result (products L scores (fun s => embedding (rooted_model root T L d) (nth s x O) c))
    (embedding (rooted_model root T L d) t c) r ->
  Rabs (r - delta t c * (1 + INR k)) <= delta t c * mixed_error.
Proof.
  intros Hc Hscores H. pose proof L_real as HL. unfold t in H.
  rewrite (embedded_is_one_hot root T L d) with (i := i) in H by assumption. fold t in H.
  rewrite (products_same L _ _ scores (fun s => delta (nth s x O) c)) in H.
  2: { intros s Hs. split; [reflexivity|]. now apply (embedded_is_one_hot root T L d) with (i := i). }
  pose proof (count_at_most_L root T L d L_at_least_1 T_at_most_d x i sequence i_in_range) as Hk. fold t k in Hk.
  destruct (Nat.eq_dec t c) as [<-|Hne].
  - (* the own coordinate *)
    assert (H1 : delta t t = 1) by (unfold delta; now rewrite Nat.eqb_refl). rewrite H1 in *. rewrite !Rmult_1_l.
    assert (Hone : forall s, delta (nth s x O) t = delta t (nth s x O)) by (intros s; unfold delta; now rewrite Nat.eqb_sym).
    assert (Hcount : sum L (fun s => delta t (nth s x O)) = INR k)
      by (apply (count_as_sum result L L_at_least_1 keeps_integers); apply sequence).
    assert (Hdelta : forall s, 0 <= delta t (nth s x O) <= 1) by (intros s; apply delta_is_whole).
    assert (Hterm : forall s, (s < L)%nat ->
      (1 - eps) * delta t (nth s x O) <= scores s * delta (nth s x O) t <= (1 + eps) * delta t (nth s x O)
      /\ Rabs (scores s * delta (nth s x O) t) <= (1 + eps) * delta t (nth s x O)).
    { intros s Hs. destruct (Hscores s Hs) as [Hs1 _]. rewrite Hone. unfold delta in *. destruct (t =? nth s x O)%nat.
      - rewrite !Rmult_1_r in *. split; [revert Hs1; unfold Rabs; destruct (Rcase_abs _); lra|].
        replace (scores s) with (1 + (scores s - 1)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_R1. lra.
      - rewrite !Rmult_0_r, Rabs_R0. lra. }
    assert (Hv : Rabs (value_of_dots (products L scores (fun s => delta (nth s x O) t)) - INR k) <= INR L * eps).
    { rewrite value_of_products.
      assert (Hlow : (1 - eps) * INR k <= sum L (fun s => scores s * delta (nth s x O) t)).
      { rewrite <- Hcount, <- sum_scale. apply sum_le. intros s Hs. apply Hterm, Hs. }
      assert (Hhigh : sum L (fun s => scores s * delta (nth s x O) t) <= (1 + eps) * INR k).
      { rewrite <- Hcount, <- sum_scale. apply sum_le. intros s Hs. apply Hterm, Hs. }
      assert (INR k * eps <= INR L * eps) by (apply Rmult_le_compat_r; lra). apply Rabs_le. lra. }
    assert (Hsize : size_of_dots (products L scores (fun s => delta (nth s x O) t)) <= INR L * (1 + eps)).
    { rewrite size_of_products. apply Rle_trans with ((1 + eps) * INR k).
      - rewrite <- Hcount, <- sum_scale. apply sum_le. intros s Hs. apply Hterm, Hs.
      - rewrite Rmult_comm. apply Rmult_le_compat_r; lra. }
    apply dots_plus_are_near in H.
    2: { unfold products. destruct L; [lia|discriminate]. }
    unfold products at 2 in H. rewrite map_length, seq_length, Rabs_R1 in H.
    set (V := value_of_dots (products L scores (fun s => delta (nth s x O) t))) in *.
    replace (r - (1 + INR k)) with ((r - (V + 1)) + (V - INR k)) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _). unfold mixed_error.
    pose proof (sum_error_in_size (S L) (size_of_dots (products L scores (fun s => delta (nth s x O) t)) + 1)
      (INR L * (1 + eps) + 1) ltac:(lra)). lra.
  - (* another one: only zeros *)
    assert (H0 : delta t c = 0) by (unfold delta; now rewrite (proj2 (Nat.eqb_neq t c) Hne)). rewrite H0 in *.
    assert (Hzero : forall s, (s < L)%nat -> scores s * delta (nth s x O) c = 0).
    { intros s Hs. destruct (Hscores s Hs) as [_ Hs0]. unfold delta in *. destruct (Nat.eqb_spec (nth s x O) c) as [<-|]; [|ring].
      rewrite Hs0; [ring|]. now rewrite (proj2 (Nat.eqb_neq t (nth s x O)) Hne). }
    apply (dots_plus_are_exact result _ keeps_integers) in H.
    + rewrite H, value_of_products, (sum_ext _ _ (fun _ => 0)), sum_zero by exact Hzero.
      rewrite !Rmult_0_l, Rplus_0_l, Rminus_0_r, Rabs_R0. lra.
    + apply products_multiple. intros s Hs. rewrite Hzero by exact Hs. exists 0%Z. ring.
    + exists 0%Z. ring.
    + rewrite size_of_products, (sum_ext _ _ (fun _ => 0)), sum_zero, Rabs_R0 by (intros; now rewrite Hzero, Rabs_R0). nra.
Qed.

Lemma neuron_is_near (mixed : nat -> R) (y : R) :
  (forall c, (c < d)%nat -> Rabs (mixed c - delta t c * (1 + INR k)) <= delta t c * mixed_error) ->
  dots_plus result (products d mixed (fun c => at2 (W_1 (rooted_model root T L d)) c 0)) (at1 (b_1 (rooted_model root T L d)) 0) y ->
  Rabs (y - INR k) <= neuron_error.
Proof.
  intros Hm H. pose proof L_real as HL. pose proof mixed_error_nonnegative as He.
  pose proof (token_below root T L d L_at_least_1 T_at_most_d x i sequence i_in_range i i_in_range) as Ht. fold t in Ht.
  pose proof (count_at_most_L root T L d L_at_least_1 T_at_most_d x i sequence i_in_range) as Hk. fold t k in Hk.
  rewrite (products_same d _ _ mixed (fun _ => 1)) in H.
  2: { intros c Hc. split; [reflexivity|]. cbn [W_1 rooted_model]. now rewrite at2_by by lia. }
  change (at1 (b_1 (rooted_model root T L d)) 0) with (-1) in H.
  assert (Hself : delta t t = 1) by (unfold delta; now rewrite Nat.eqb_refl).
  pose proof (Hm t Ht) as Hmt. rewrite Hself, !Rmult_1_l in Hmt.
  assert (Hmixed : forall c, (c < d)%nat -> mixed c = delta t c * mixed t).
  { intros c Hc. unfold delta in *. destruct (Nat.eqb_spec t c) as [<-|Hne]; [ring|].
    specialize (Hm c Hc). rewrite (proj2 (Nat.eqb_neq t c) Hne), !Rmult_0_l, Rminus_0_r in Hm.
    pose proof (Rabs_pos (mixed c)) as Hp. rewrite Rmult_0_l. revert Hm Hp. unfold Rabs. destruct (Rcase_abs _); lra. }
  assert (Hv : value_of_dots (products d mixed (fun _ => 1)) = mixed t).
  { rewrite value_of_products, (sum_ext _ _ (fun c => delta t c * mixed t)); [now apply (sum_delta d t (fun _ => mixed t))|].
    intros c Hc. now rewrite Rmult_1_r, Hmixed. }
  assert (Hs : size_of_dots (products d mixed (fun _ => 1)) = Rabs (mixed t)).
  { rewrite size_of_products, (sum_ext _ _ (fun c => delta t c * Rabs (mixed t))); [now apply (sum_delta d t (fun _ => Rabs (mixed t)))|].
    intros c Hc. rewrite Rmult_1_r, Hmixed, Rabs_mult by exact Hc. f_equal. apply Rabs_pos_eq. apply delta_is_whole. }
  apply dots_plus_are_near in H.
  2: { unfold products. destruct d; [lia|discriminate]. }
  unfold products at 2 in H. rewrite map_length, seq_length, Hv, Hs in H. rewrite (Rabs_left (-1)) in H by lra.
  assert (Hsize : Rabs (mixed t) <= INR L + 1 + mixed_error).
  { replace (mixed t) with ((1 + INR k) + (mixed t - (1 + INR k))) by ring. apply Rle_trans with (1 := Rabs_triang _ _).
    rewrite (Rabs_pos_eq (1 + INR k)) by lra. lra. }
  pose proof (sum_error_in_size (S d) (Rabs (mixed t) + - -1) (INR L + 2 + mixed_error) ltac:(lra)).
  replace (y - INR k) with ((y - (mixed t + -1)) + (mixed t - (1 + INR k))) by ring.
  apply Rle_trans with (1 := Rabs_triang _ _). unfold neuron_error. lra.
Qed.

Lemma logit_is_near (c : nat) (neurons : nat -> R) (r : R) : (c < L)%nat -> Rabs (neurons O - INR k) <= neuron_error ->
  dots_plus result (products 1 neurons (fun n => at2 (W_2 (rooted_model root T L d)) n c)) (at1 (b_2 (rooted_model root T L d)) c) r ->
  Rabs (r - (INR k * (2 * INR (c + 1)) - INR (c + 1) * INR (c + 1))) <= logit_error.
Proof.
  intros Hc Hn H. pose proof L_real as HL. cbn [W_2 b_2 rooted_model] in H. unfold W_2_of, b_2_of in H. rewrite at1_by in H by assumption.
  pose proof (count_at_most_L root T L d L_at_least_1 T_at_most_d x i sequence i_in_range) as Hk. fold t k in Hk.
  rewrite (products_same 1 _ _ neurons (fun _ => 2 * INR (c + 1))) in H.
  2: { intros n Hn1. assert (n = O) as -> by lia. rewrite at2_by by lia. split; [reflexivity|field]. }
  apply dots_plus_are_near in H; [|discriminate]. rewrite value_of_products, size_of_products in H. cbn [products map seq length sum] in H.
  rewrite !Rplus_0_l in H. assert (Hc1 : 0 <= INR (c + 1) <= INR L) by (split; [apply pos_INR|apply le_INR; lia]).
  set (h := neurons O) in *. set (j := INR (c + 1)) in *. pose proof (Rabs_pos (h - INR k)) as Hp.
  assert (Hh : Rabs h <= INR L + neuron_error).
  { replace h with (INR k + (h - INR k)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). rewrite (Rabs_pos_eq (INR k)); lra. }
  assert (Hsize : Rabs (h * (2 * j)) + Rabs (- (j * j)) <= 2 * INR L * (INR L + neuron_error) + INR L * INR L).
  { rewrite Rabs_Ropp, Rabs_mult, (Rabs_pos_eq (2 * j)), (Rabs_pos_eq (j * j)) by nra. pose proof (Rabs_pos h) as Hh0.
    assert (Rabs h * (2 * j) <= (INR L + neuron_error) * (2 * INR L)) by (apply Rmult_le_compat; lra).
    assert (j * j <= INR L * INR L) by (apply Rmult_le_compat; lra). lra. }
  pose proof (sum_error_in_size 2 _ _ Hsize) as He.
  replace (r - (INR k * (2 * j) - j * j)) with ((r - (h * (2 * j) + - (j * j))) + (h - INR k) * (2 * j)) by ring.
  apply Rle_trans with (1 := Rabs_triang _ _). rewrite (Rabs_mult (h - INR k)), (Rabs_pos_eq (2 * j)) by lra. unfold logit_error.
  assert (Rabs (h - INR k) * (2 * j) <= neuron_error * (2 * INR L)) by (apply Rmult_le_compat; lra). lra.
Qed.

Lemma logits_are_near (logits : nat -> R) : evaluates result roots may_multiply (rooted_model root T L d) x i logits ->
  forall c, (c < L)%nat -> Rabs (logits c - (INR k * (2 * INR (c + 1)) - INR (c + 1) * INR (c + 1))) <= logit_error.
Proof.
  intros (query & key & scores & mixed & neurons & Hq & Hk & Hs & Hm & Hn & Hl) c Hc.
  cbn [Model.d Model.L p classes rooted_model] in *. fold t in Hq, Hm.
  assert (Hquery : forall c, (c < d)%nat -> query c = root * delta t c)
    by (intros c' Hc'; now apply (query_is_exact result root T L d) with (x := x) (i := i); try assumption; apply Hq).
  assert (Hkey : forall s c, (s < L)%nat -> (c < d)%nat -> key s c = delta (nth s x O) c)
    by (intros s c' Hs' Hc'; now apply (key_is_exact result root T L d) with (x := x) (i := i); try assumption; apply Hk).
  assert (Hscores : forall s, (s < L)%nat -> Rabs (scores s - delta t (nth s x O)) <= eps * delta t (nth s x O)
    /\ (delta t (nth s x O) = 0 -> scores s = 0)).
  { intros s Hs'. destruct (Hs s Hs') as [v [Hv Hr]]. apply (score_is_near s v); [assumption| |exact Hr].
    rewrite <- (products_same d query (key s)); [exact Hv|]. intros c' Hc'. now rewrite Hquery, Hkey. }
  assert (Hmixed : forall c, (c < d)%nat -> Rabs (mixed c - delta t c * (1 + INR k)) <= delta t c * mixed_error)
    by (intros c' Hc'; now apply (mixed_is_near c' scores), Hm).
  destruct (Hn O ltac:(lia)) as [y [Hy Hn0]]. apply neuron_is_near in Hy; [|exact Hmixed].
  apply (logit_is_near c neurons); [exact Hc| |now apply Hl]. rewrite Hn0.
  pose proof (pos_INR k) as Hk0. unfold Rmax. destruct (Rle_dec 0 y) as [_|Hneg]; [exact Hy|].
  apply Rle_trans with (2 := Hy). rewrite (Rabs_left1 (0 - INR k)), (Rabs_left1 (y - INR k)) by lra. lra.
Qed.
End Position.

Theorem rounded_counts : counts_in_any_order result roots may_multiply (rooted_model root T L d) (1 - 2 * logit_error).
Proof.
  intros x Hx i Hi logits Hlogits c Hc Hne. cbn [Model.L classes first_count rooted_model] in *.
  pose proof (count_at_most_L root T L d L_at_least_1 T_at_most_d x i Hx Hi) as Hk. unfold count in *.
  set (k := count_occ Nat.eq_dec x (nth i x O)) in *. assert (Hk1 : (1 <= k <= L)%nat) by (split; apply INR_le; [simpl|]; lra).
  pose proof (logits_are_near x i Hx Hi logits Hlogits c Hc) as H1. pose proof (logits_are_near x i Hx Hi logits Hlogits (k - 1) ltac:(lia)) as H2.
  fold k in H1, H2. replace (k - 1 + 1)%nat with k in H2 by lia. set (j := (c + 1)%nat) in *.
  pose proof (squared_distance k j ltac:(lia)) as Hsq.
  assert (Hb1 : logits c <= INR k * (2 * INR j) - INR j * INR j + logit_error) by (revert H1; unfold Rabs; destruct (Rcase_abs _); lra).
  assert (Hb2 : INR k * (2 * INR k) - INR k * INR k - logit_error <= logits (k - 1)%nat) by (revert H2; unfold Rabs; destruct (Rcase_abs _); lra).
  lra.
Qed.

(* ---- How much that is ------------------------------------------------------------------------------------------------------------- *)

Lemma power_is_small (n : nat) : INR n * u <= 1/2 -> (1 + u) ^ n <= 1 + 2 * INR n * u.
Proof.
  induction n as [|n IH]; intros H; [simpl; lra|]. rewrite S_INR in *. pose proof (pos_INR n) as Hn.
  specialize (IH ltac:(lra)). cbn [pow]. assert ((1 + u) * (1 + u) ^ n <= (1 + u) * (1 + 2 * INR n * u)) by (apply Rmult_le_compat_l; lra).
  assert (u * (INR n * u) <= u * (1/2)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Lemma sum_error_is_small (n : nat) (size : R) : (1 <= n)%nat -> 4 * INR n * u <= 1 -> 0 <= size -> eta <= u ->
  sum_error n size <= 4 * INR n * u * (size + 1).
Proof.
  intros Hn Hu Hs He. unfold sum_error. apply le_INR in Hn. simpl in Hn.
  assert (Hg : growth n <= 1 + 4 * INR n * u).
  { assert (Htwo : INR (2 * n) = 2 * INR n) by (rewrite mult_INR; simpl; ring).
    pose proof (power_is_small (2 * n)) as H. rewrite Htwo in H. unfold growth. specialize (H ltac:(lra)). lra. }
  pose proof (growth_grows 0 n ltac:(lia)) as [_ Hg1]. unfold growth at 1 in Hg1. simpl pow in Hg1.
  assert ((growth n - 1) * size <= 4 * INR n * u * size) by (apply Rmult_le_compat_r; lra).
  assert (growth n * eta <= 2 * u) by (apply Rmult_le_compat; lra).
  assert ((2 * INR n - 1) * (growth n * eta) <= (2 * INR n - 1) * (2 * u)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Lemma logit_error_is_small : (1 <= d)%nat -> eta <= u -> eps <= 3 * u -> 512 * (INR L + INR d + 2) * (INR L * INR L) * u <= 1 ->
  logit_error <= 1/4.
Proof.
  intros Hd He Heps Hu. pose proof L_at_least_1 as HL. apply le_INR in HL. apply le_INR in Hd as HD. simpl in HL, HD.
  set (l := INR L) in *. set (D := INR d) in *. set (N := l + D + 2) in *.
  assert (HN : 4 <= N) by (unfold N; lra).
  assert (Hl2 : l <= l * l) by nra. assert (Hu0 : 0 <= N * u) by (apply Rmult_le_pos; lra).
  assert (HNl : N * u <= N * u * l) by nra. assert (HNl2 : N * u * l <= N * u * (l * l)) by (apply Rmult_le_compat_l; lra).
  assert (Hbound : N * u * (l * l) <= 1/512) by lra.
  assert (Hu4 : 4 * u <= N * u) by (apply Rmult_le_compat_r; lra).
  assert (Hlu : l * u <= N * u) by (apply Rmult_le_compat_r; unfold N; lra).
  assert (HDu : D * u <= N * u) by (apply Rmult_le_compat_r; unfold N; lra).
  assert (Hl2u : l * l * u * 4 <= N * u * (l * l)).
  { assert (0 <= l * l * u) by (repeat apply Rmult_le_pos; lra). nra. }
  assert (Hl0 : 0 <= l * u) by (apply Rmult_le_pos; lra). assert (Hl20 : 0 <= l * l * u) by (repeat apply Rmult_le_pos; lra).
  assert (Hl2u' : l * u <= l * l * u) by (apply Rmult_le_compat_r; lra). assert (Hulu : u <= l * u) by nra.
  (* the mixed token *)
  assert (Hx : mixed_error <= 11 * ((l + 1) * (l + 1)) * u).
  { unfold mixed_error. fold l. assert (Hsum : sum_error (S L) (l * (1 + eps) + 1) <= 4 * (l + 1) * u * (2 * l + 2)).
    { assert (Hle : l * eps <= l) by (rewrite <- (Rmult_1_r l) at 2; apply Rmult_le_compat_l; lra). assert (0 <= l * eps) by (apply Rmult_le_pos; lra).
      apply Rle_trans with (4 * INR (S L) * u * (l * (1 + eps) + 1 + 1)).
      - apply sum_error_is_small; [lia|rewrite S_INR; fold l; lra|lra|exact He].
      - rewrite S_INR. fold l. apply Rmult_le_compat_l; [repeat apply Rmult_le_pos; lra|lra]. }
    assert (l * eps <= l * (3 * u)) by (apply Rmult_le_compat_l; lra). nra. }
  assert (Hx1 : mixed_error <= 1) by nra.
  assert (Hx00 : 0 <= mixed_error).
  { unfold mixed_error. fold l. pose proof (growth_grows 0 (S L) ltac:(lia)) as [_ Hg]. unfold growth at 1 in Hg. simpl pow in Hg.
    unfold sum_error. rewrite S_INR. fold l. assert (0 <= l * eps) by (apply Rmult_le_pos; lra).
    assert (0 <= (growth (S L) - 1) * (l * (1 + eps) + 1)) by (apply Rmult_le_pos; lra).
    assert (0 <= (2 * (l + 1) - 1) * growth (S L) * eta) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra. }
  (* the neuron *)
  assert (Hy : neuron_error <= 55 * (N * u * l)).
  { unfold neuron_error. fold l. assert (Hsum : sum_error (S d) (l + 2 + mixed_error) <= 4 * (D + 1) * u * (l + 4)).
    { apply Rle_trans with (4 * INR (S d) * u * (l + 2 + mixed_error + 1)).
      - apply sum_error_is_small; [lia|rewrite S_INR; fold D; lra|lra|exact He].
      - rewrite S_INR. fold D. apply Rmult_le_compat_l; [repeat apply Rmult_le_pos; lra|lra]. }
    assert (H1 : (l + 1) * u * (l + 1) <= (l + 1) * u * (5 * l)) by (apply Rmult_le_compat_l; [apply Rmult_le_pos|]; lra).
    assert (H2 : (D + 1) * u * (l + 4) <= (D + 1) * u * (5 * l)) by (apply Rmult_le_compat_l; [apply Rmult_le_pos|]; lra).
    assert (H3 : 0 <= (D + 1) * u * (5 * l)) by (repeat apply Rmult_le_pos; lra).
    unfold N. lra. }
  assert (Hy1 : neuron_error <= 1) by lra.
  assert (Hy0 : 0 <= neuron_error).
  { unfold neuron_error, sum_error. rewrite S_INR. fold l D. pose proof (growth_grows 0 (S d) ltac:(lia)) as [_ Hg].
    unfold growth at 1 in Hg. simpl pow in Hg.
    assert (0 <= (growth (S d) - 1) * (l + 2 + mixed_error)) by (apply Rmult_le_pos; lra).
    assert (0 <= (2 * (D + 1) - 1) * growth (S d) * eta) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra. }
  (* the logits *)
  unfold logit_error. fold l.
  assert (Hly : l * neuron_error <= l * 1) by (apply Rmult_le_compat_l; lra). assert (Hly0 : 0 <= l * neuron_error) by (apply Rmult_le_pos; lra).
  assert (Hsum : sum_error 2 (2 * l * (l + neuron_error) + l * l) <= 8 * u * (6 * (l * l))).
  { apply Rle_trans with (4 * INR 2 * u * (2 * l * (l + neuron_error) + l * l + 1)).
    - apply sum_error_is_small; [lia|simpl; lra|nra|exact He].
    - simpl INR. replace (4 * (1 + 1) * u) with (8 * u) by ring. apply Rmult_le_compat_l; [lra|nra]. }
  assert (Hmain : 2 * l * neuron_error <= 2 * l * (55 * (N * u * l))) by (apply Rmult_le_compat_l; lra). lra.
Qed.
End Family.
End Rounded.

(* ---- Binary floats ---------------------------------------------------------------------------------------------------------------- *)

Section Floats.
Variables emin prec : Z.
Context { prec_gt_0_ : Prec_gt_0 prec }.

Definition unit_roundoff : R := bpow radix2 (1 - prec).
Definition least_normal : R := bpow radix2 (emin + prec - 1).

(* Rounding in any direction, to the format or to a wider one, or flushing to zero. *)
Lemma computes_is_near (v r : R) : computes emin prec v r -> Rabs (r - v) <= unit_roundoff * Rabs v + least_normal.
Proof.
  unfold unit_roundoff, least_normal. pose proof (Rabs_pos v) as Hv. pose proof (bpow_ge_0 radix2 (1 - prec)) as Hu.
  intros [(emin' & prec' & rnd & He & Hp & Hrnd & ->)|[Hs ->]].
  - assert (Hprec' : Prec_gt_0 prec') by (unfold Prec_gt_0 in *; lia).
    destruct (Rle_or_lt (bpow radix2 (emin' + prec' - 1)) (Rabs v)) as [Hn|Hn].
    + pose proof (relative_error_FLT radix2 emin' prec' Hprec' rnd v Hn) as H.
      assert (Hle : bpow radix2 (- prec' + 1) <= bpow radix2 (1 - prec)) by (apply bpow_le; lia).
      assert (bpow radix2 (- prec' + 1) * Rabs v <= bpow radix2 (1 - prec) * Rabs v) by now apply Rmult_le_compat_r.
      pose proof (bpow_ge_0 radix2 (emin + prec - 1)). lra.
    + assert (Hulp : Rabs (round radix2 (FLT_exp emin' prec') rnd v - v) <= ulp radix2 (FLT_exp emin' prec') v)
        by (apply error_le_ulp; [now apply FLT_exp_valid|exact Hrnd]).
      rewrite ulp_FLT_small in Hulp.
      * assert (bpow radix2 emin' <= bpow radix2 (emin + prec - 1)) by (apply bpow_le; unfold Prec_gt_0 in prec_gt_0_; lia).
        assert (0 <= bpow radix2 (1 - prec) * Rabs v) by now apply Rmult_le_pos. lra.
      * exact Hprec'.
      * apply Rlt_le_trans with (1 := Hn). apply bpow_le. lia.
  - rewrite Rminus_0_l, Rabs_Ropp. assert (0 <= bpow radix2 (1 - prec) * Rabs v) by now apply Rmult_le_pos. lra.
Qed.

(* For every d, whether one divides by the rounded root or multiplies by its rounded reciprocal: where the format has so many
   bits, every evaluation answers every sequence rightly at every position, by a margin of a half. *)
Theorem floats_count_rounded (T L d : nat) : (1 <= L)%nat -> (T <= d)%nat -> (1 <= d)%nat ->
  512 * (INR L + INR d + 2) * (INR L * INR L) <= bpow radix2 (prec - 1) -> 12 * INR d * least_normal <= unit_roundoff ->
  counts_in_any_order (computes emin prec) (is_rounded_root emin prec) True (rooted_model (rounded_root emin prec d) T L d) (1/2).
Proof.
  intros HL HT Hd Hbits Hnormal. apply le_INR in HL as HLR. apply le_INR in Hd as HdR. simpl in HLR, HdR.
  assert (Hu0 : 0 < unit_roundoff) by apply bpow_gt_0. assert (Heta0 : 0 < least_normal) by apply bpow_gt_0.
  assert (Hinv : unit_roundoff * bpow radix2 (prec - 1) = 1).
  { unfold unit_roundoff. rewrite <- bpow_plus. replace (1 - prec + (prec - 1))%Z with 0%Z by ring. reflexivity. }
  assert (Hll : 1 <= INR L * INR L) by nra.
  assert (Hbig : 2048 * (INR L * INR L) <= bpow radix2 (prec - 1)) by nra.
  assert (Hsmall : unit_roundoff * 2048 <= 1).
  { rewrite <- Hinv. apply Rmult_le_compat_l; lra. }
  assert (Heta : 12 * least_normal <= unit_roundoff) by nra.
  assert (Hones : (emin + prec <= 1)%Z).
  { assert (H : bpow radix2 (emin + prec - 1) <= bpow radix2 0) by (unfold least_normal in *; simpl; lra).
    apply le_bpow in H. lia. }
  destruct (rounded_root_is_float emin prec Hones d Hd) as [Hroot1 Hfloat]. set (root := rounded_root emin prec d) in *.
  assert (Hsqrt : 1 <= sqrt (INR d) <= INR d).
  { split; [rewrite <- sqrt_1 at 1; now apply sqrt_le_1_alt|]. apply Rsqr_incr_0_var; [|lra]. rewrite Rsqr_sqrt by lra. unfold Rsqr. nra. }
  assert (Hroot : root <= 3 * INR d).
  { assert (H : Rabs (root - sqrt (INR d)) <= unit_roundoff * Rabs (sqrt (INR d)) + least_normal).
    { apply computes_is_near. left. exists emin, prec, ZnearestE. repeat split; try lia; try apply valid_rnd_N. }
    rewrite (Rabs_pos_eq (sqrt (INR d))) in H by lra. revert H. unfold Rabs. destruct (Rcase_abs _); nra. }
  assert (Hre : root * least_normal <= unit_roundoff / 4) by nra.
  assert (Heps : forall r, scaled (computes emin prec) (is_rounded_root emin prec) True d root r -> Rabs (r - 1) <= 3 * unit_roundoff).
  { intros r [q [Hq Hr]]. assert (q = root) as -> by exact Hq. destruct Hr as [Hr|[_ [i [Hi Hr]]]].
    - replace (root / root) with 1 in Hr by (field; lra). apply computes_is_near in Hr. rewrite Rabs_R1 in Hr. lra.
    - apply computes_is_near in Hi, Hr. assert (Hpos : 0 < / root) by (apply Rinv_0_lt_compat; lra).
      rewrite (Rabs_pos_eq (/ root)) in Hi by lra.
      assert (Hprod : Rabs (root * i - 1) <= unit_roundoff + root * least_normal).
      { replace (root * i - 1) with (root * (i - / root)) by (field; lra). rewrite Rabs_mult, (Rabs_pos_eq root) by lra.
        replace (unit_roundoff + root * least_normal) with (root * (unit_roundoff * / root + least_normal)) by (field; lra).
        apply Rmult_le_compat_l; lra. }
      assert (Hw : Rabs (root * i) <= 1 + (unit_roundoff + root * least_normal)).
      { replace (root * i) with (1 + (root * i - 1)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_R1. lra. }
      replace (r - 1) with ((r - root * i) + (root * i - 1)) by ring. apply Rle_trans with (1 := Rabs_triang _ _).
      assert (unit_roundoff * Rabs (root * i) <= unit_roundoff * (1 + (unit_roundoff + root * least_normal))) by (apply Rmult_le_compat_l; lra).
      nra. }
  pose proof (rounded_counts (computes emin prec) (is_rounded_root emin prec) True unit_roundoff least_normal
    ltac:(lra) ltac:(lra) computes_is_near root (3 * unit_roundoff) T L d HL HT ltac:(lra) ltac:(lra)) as Hcounts.
  assert (Hints : keeps (computes emin prec) 1 (3 * (INR L * INR L))).
  { apply integers_are_kept; [exact prec_gt_0_|exact Hones|]. apply Rlt_le_trans with (bpow radix2 (prec - 1)); [lra|apply bpow_le; lia]. }
  assert (Hkeeps : keeps (computes emin prec) root root) by now apply root_is_kept.
  specialize (Hcounts Hints Hkeeps Heps).
  assert (Hsum : logit_error unit_roundoff least_normal (3 * unit_roundoff) L d <= 1/4).
  { apply logit_error_is_small with (T := T); try assumption; try lra.
    rewrite <- Hinv, Rmult_comm. apply Rmult_le_compat_l; lra. }
  intros x Hx i Hi logits Hlogits c Hc Hne. specialize (Hcounts x Hx i Hi logits Hlogits c Hc Hne). lra.
Qed.
End Floats.

(* For example float32, with T = 32 tokens, sequences of length 10, and d = 32. *)
Theorem float32_counts :
  counts_in_any_order (computes (-149) 24) (is_rounded_root (-149) 24) True (rooted_model (rounded_root (-149) 24 32) 32 10 32) (1/2).
Proof. apply (@floats_count_rounded (-149) 24 eq_refl); try lia; unfold least_normal, unit_roundoff; simpl; lra. Qed.
