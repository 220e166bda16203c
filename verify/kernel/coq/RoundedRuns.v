(* How far what a run computes is from real arithmetic: of one matrix product, by the sizes of its terms. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Permutation.
From Flocq Require Import Core.
From Weightproof Require Import Model Stored Sums Regions Evaluations RoundedEvaluations Runs.
Import ListNotations.
Open Scope R_scope.

Section Format.
Variable f : format.

Local Notation emin := (least_exponent f).
Local Notation prec := (precision f).
Local Notation largest := (largest_number f).
Local Notation u := (unit_roundoff prec).
Local Notation eta := (least_normal emin prec).
Local Notation growth := (growth u).
Local Notation rounds := (computes emin prec).
Local Notation op := (operates f).

Local Instance precision_positive : Prec_gt_0 prec.
Proof. unfold Prec_gt_0. now destruct f. Qed.

Lemma u_positive : 0 < u. Proof. apply bpow_gt_0. Qed.
Lemma eta_positive : 0 < eta. Proof. apply bpow_gt_0. Qed.
Lemma eta_below_u : eta <= u.
Proof. unfold least_normal, unit_roundoff. apply bpow_le. now destruct f. Qed.

Lemma growth_at_least_1 (n : nat) : 1 <= growth n.
Proof. pose proof u_positive. apply (growth_grows u ltac:(lra) 0 n). lia. Qed.

(* What n operations on numbers of a size may be off by. *)
Definition off (n : nat) (size : R) : R := (growth n - 1) * size + 2 * INR n * growth n * eta.

Lemma off_grows (m n : nat) (size more : R) : (m <= n)%nat -> 0 <= size <= more -> 0 <= off m size <= off n more.
Proof.
  intros Hn Hs. pose proof u_positive as Hu. pose proof eta_positive as He. unfold off.
  pose proof (growth_grows u ltac:(lra) m n Hn) as Hg. pose proof (growth_at_least_1 m) as Hm. apply le_INR in Hn. pose proof (pos_INR m) as Hm0.
  assert (0 <= (growth m - 1) * size) by (apply Rmult_le_pos; lra).
  assert ((growth m - 1) * size <= (growth n - 1) * more) by (apply Rmult_le_compat; lra).
  assert (0 <= growth m * eta) by (apply Rmult_le_pos; lra).
  assert (growth m * eta <= growth n * eta) by (apply Rmult_le_compat_r; lra).
  assert (0 <= 2 * INR m * (growth m * eta)) by (apply Rmult_le_pos; lra).
  assert (2 * INR m * (growth m * eta) <= 2 * INR n * (growth n * eta)) by (apply Rmult_le_compat; lra). lra.
Qed.

Lemma operates_computes (v r : R) : op v r -> Rabs v <= largest -> rounds v r.
Proof. intros [H|H]; [lra|easy]. Qed.

(* One more operation. *)
Lemma operation_is_near (v w r size : R) (n : nat) : op w r -> Rabs (w - v) <= off n size -> Rabs v <= size ->
  size + off n size <= largest -> Rabs (r - v) <= off (S n) size.
Proof.
  intros H Hw Hv Hl. pose proof u_positive as Hu. pose proof eta_positive as He. pose proof (Rabs_pos v).
  assert (Hc : rounds w r).
  { apply operates_computes; [exact H|]. replace w with (v + (w - v)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. }
  pose proof (one_more rounds u eta ltac:(lra) ltac:(lra) (computes_is_near emin prec) v w r (off n size) size (2 * INR n) n Hc Hw Hv
    ltac:(pose proof (pos_INR n); lra) ltac:(unfold off; lra)) as Hr.
  apply Rle_trans with (1 := Hr). unfold off. rewrite S_INR. pose proof (growth_at_least_1 (S n)).
  assert (0 <= growth (S n) * eta) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma again_is_near (v w r size : R) (n : nat) : again op w r -> Rabs (w - v) <= off n size -> Rabs v <= size ->
  size + off n size <= largest -> Rabs (r - v) <= off (S n) size.
Proof.
  intros [->|H] Hw Hv Hl; [|now apply (operation_is_near v w)].
  pose proof (Rabs_pos v). pose proof (off_grows n (S n) size size ltac:(lia) ltac:(lra)). lra.
Qed.

Lemma reads_are_near (v w r size : R) (n : nat) : reads op w r -> Rabs (w - v) <= off n size -> Rabs v <= size ->
  size + off (n + 3) size <= largest -> Rabs (r - v) <= off (n + 3) size.
Proof.
  intros [a [b [H1 [H2 H3]]]] Hw Hv Hl. pose proof (Rabs_pos v).
  pose proof (off_grows n (n + 3) size size ltac:(lia) ltac:(lra)). pose proof (off_grows (S n) (n + 3) size size ltac:(lia) ltac:(lra)).
  pose proof (off_grows (S (S n)) (n + 3) size size ltac:(lia) ltac:(lra)).
  replace (n + 3)%nat with (S (S (S n))) at 1 by lia.
  apply (again_is_near v b); [exact H3| |exact Hv|lra]. apply (again_is_near v a); [exact H2| |exact Hv|lra].
  now apply (again_is_near v w); [exact H1| | |lra].
Qed.

(* ---- Sums ----------------------------------------------------------------------------------------------------------------- *)

Lemma dots_of_none (result : R -> R -> Prop) (r : R) : dots result [] r -> r = 0.
Proof.
  intros Hd. remember (@nil (R * R)) as l eqn:Hl. induction Hd as [| | k l ? ? ? Hk| |k l r Hp Hd IH]; try discriminate; try reflexivity.
  - apply app_eq_nil in Hl as [-> _]. congruence.
  - subst l. apply IH. now apply Permutation_nil, Permutation_sym.
Qed.

Lemma size_app (k l : list (R * R)) : size_of_dots (k ++ l) = size_of_dots k + size_of_dots l.
Proof. unfold size_of_dots. now rewrite map_app, total_app. Qed.

Lemma value_app (k l : list (R * R)) : value_of_dots (k ++ l) = value_of_dots k + value_of_dots l.
Proof. unfold value_of_dots. now rewrite map_app, total_app. Qed.

Lemma dots_of_computed (l : list (R * R)) (r : R) : dots rounds l r -> Rabs (r - value_of_dots l) <= off (length l) (size_of_dots l).
Proof.
  intros H. pose proof u_positive as Hu. pose proof eta_positive as He. destruct l as [|x l].
  - apply dots_of_none in H as ->. unfold value_of_dots, off, size_of_dots. cbn. rewrite Rminus_0_r, Rabs_R0. lra.
  - pose proof (dots_are_near rounds u eta ltac:(lra) ltac:(lra) (computes_is_near emin prec) _ _ H ltac:(discriminate)) as Hn.
    apply Rle_trans with (1 := Hn). unfold sum_error, off. pose proof (growth_at_least_1 (length (x :: l))).
    assert (0 <= growth (length (x :: l)) * eta) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma off_of_parts (k l : list (R * R)) :
  off (length k) (size_of_dots k) + off (length l) (size_of_dots l) <= off (length (k ++ l)) (size_of_dots (k ++ l)).
Proof.
  rewrite size_app. pose proof u_positive as Hu. pose proof eta_positive as He.
  pose proof (size_nonnegative k) as Hk. pose proof (size_nonnegative l) as Hl. unfold off.
  pose proof (growth_grows u ltac:(lra) (length k) (length (k ++ l)) ltac:(rewrite app_length; lia)) as Hgk.
  pose proof (growth_grows u ltac:(lra) (length l) (length (k ++ l)) ltac:(rewrite app_length; lia)) as Hgl.
  set (g := growth (length (k ++ l))) in *. rewrite app_length, plus_INR.
  pose proof (pos_INR (length k)) as Hnk. pose proof (pos_INR (length l)) as Hnl.
  assert ((growth (length k) - 1) * size_of_dots k <= (g - 1) * size_of_dots k) by (apply Rmult_le_compat_r; lra).
  assert ((growth (length l) - 1) * size_of_dots l <= (g - 1) * size_of_dots l) by (apply Rmult_le_compat_r; lra).
  assert (growth (length k) * eta <= g * eta) by (apply Rmult_le_compat_r; lra).
  assert (growth (length l) * eta <= g * eta) by (apply Rmult_le_compat_r; lra).
  assert (2 * INR (length k) * (growth (length k) * eta) <= 2 * INR (length k) * (g * eta)) by (apply Rmult_le_compat_l; lra).
  assert (2 * INR (length l) * (growth (length l) * eta) <= 2 * INR (length l) * (g * eta)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* Where the sum of the sizes stays in the format, nothing overflows in any order. *)
Lemma dots_stay (l : list (R * R)) (r : R) : dots op l r -> size_of_dots l + off (length l) (size_of_dots l) <= largest -> dots rounds l r.
Proof.
  induction 1 as [|a b r H|k l r s t Hk Hl Hdk IHk Hdl IHl H|a b l r t Hd IH H|k l r Hp Hd IH]; intros Hs.
  - constructor.
  - constructor. apply operates_computes; [exact H|]. apply Rle_trans with (2 := Hs).
    unfold size_of_dots. cbn. pose proof (Rabs_pos (a * b)). pose proof (off_grows 1 1 (Rabs (a * b) + 0) (Rabs (a * b) + 0) ltac:(lia) ltac:(lra)). lra.
  - pose proof (off_of_parts k l) as Ho. rewrite size_app in *. pose proof (size_nonnegative k) as Hsk. pose proof (size_nonnegative l) as Hsl.
    pose proof (off_grows (length k) (length k) _ _ ltac:(lia) (conj Hsk (Rle_refl _))) as Hok.
    pose proof (off_grows (length l) (length l) _ _ ltac:(lia) (conj Hsl (Rle_refl _))) as Hol.
    specialize (IHk ltac:(lra)). specialize (IHl ltac:(lra)). refine (dots_two _ k l r s t Hk Hl IHk IHl _).
    apply operates_computes; [exact H|]. apply dots_of_computed in IHk, IHl.
    pose proof (value_at_most_size k) as Hvk. pose proof (value_at_most_size l) as Hvl.
    replace (r + s) with ((r - value_of_dots k) + (s - value_of_dots l) + (value_of_dots k + value_of_dots l)) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _).
    pose proof (Rabs_triang (r - value_of_dots k) (s - value_of_dots l)). pose proof (Rabs_triang (value_of_dots k) (value_of_dots l)). lra.
  - pose proof (off_of_parts [(a, b)] l) as Ho. change ((a, b) :: l) with ([(a, b)] ++ l) in *. rewrite size_app in *.
    pose proof (size_nonnegative [(a, b)]) as Hsk. pose proof (size_nonnegative l) as Hsl.
    pose proof (off_grows 1 1 _ _ (le_n _) (conj Hsk (Rle_refl _))) as Hok. change (length [(a, b)]) with 1%nat in Ho.
    specialize (IH ltac:(lra)). refine (dots_fused _ a b l r t IH _). apply operates_computes; [exact H|]. apply dots_of_computed in IH.
    pose proof (value_at_most_size l) as Hvl. assert (Hab : Rabs (a * b) = size_of_dots [(a, b)]) by (unfold size_of_dots; cbn; lra).
    replace (a * b + r) with (a * b + (r - value_of_dots l) + value_of_dots l) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _). pose proof (Rabs_triang (a * b) (r - value_of_dots l)). lra.
  - refine (dots_in_any_order _ k l r Hp (IH _)).
    unfold size_of_dots in *. rewrite (total_permutation _ _ _ Hp), (Permutation_length Hp). exact Hs.
Qed.

Lemma dots_are_off (l : list (R * R)) (r : R) : dots op l r -> size_of_dots l + off (length l) (size_of_dots l) <= largest ->
  Rabs (r - value_of_dots l) <= off (length l) (size_of_dots l).
Proof. intros H Hs. now apply dots_of_computed, dots_stay. Qed.

(* With one more number: added to what is stored, or one more term. *)
Lemma sum_is_off (l : list (R * R)) (b r : R) :
  (dots op ((1, b) :: l) r \/ exists y z, dots op l y /\ reads op y z /\ op (z + b) r) ->
  let size := size_of_dots l + Rabs b in size + off (length l + 4) size <= largest ->
  Rabs (r - (value_of_dots l + b)) <= off (length l + 4) size.
Proof.
  intros H size Hs. pose proof (size_nonnegative l) as Hl. pose proof (Rabs_pos b) as Hb. destruct H as [H|[y [z [Hy [Hz Hr]]]]].
  - assert (Hsize : size_of_dots ((1, b) :: l) = size).
    { change (Rabs (1 * b) + size_of_dots l = size). rewrite Rmult_1_l. unfold size. lra. }
    assert (Hvalue : value_of_dots ((1, b) :: l) = value_of_dots l + b) by (change (1 * b + value_of_dots l = value_of_dots l + b); lra).
    apply dots_are_off in H; rewrite ?Hsize, ?Hvalue in *; cbn [length] in *;
      pose proof (off_grows (S (length l)) (length l + 4) size size ltac:(lia) ltac:(unfold size; lra)); lra.
  - assert (Ho : forall n, (n <= length l + 4)%nat -> off n (size_of_dots l) <= off (length l + 4) size)
      by (intros n Hn; apply off_grows; [exact Hn|unfold size; lra]).
    pose proof (Ho (length l) ltac:(lia)) as Ho1. pose proof (Ho (length l + 3)%nat ltac:(lia)) as Ho2. pose proof (value_at_most_size l) as Hv.
    apply dots_are_off in Hy; [|unfold size in *; lra].
    apply (reads_are_near (value_of_dots l) y z (size_of_dots l) (length l)) in Hz; [|exact Hy|exact Hv|unfold size in *; lra].
    replace (length l + 4)%nat with (S (length l + 3)) by lia.
    apply (operation_is_near (value_of_dots l + b) (z + b)); [exact Hr| | |].
    + replace (z + b - (value_of_dots l + b)) with (z - value_of_dots l) by ring. apply Rle_trans with (1 := Hz).
      apply off_grows; [lia|unfold size; lra].
    + apply Rle_trans with (1 := Rabs_triang _ _). unfold size. lra.
    + pose proof (off_grows (length l + 3) (length l + 4) size size ltac:(lia) ltac:(unfold size; lra)). lra.
Qed.

(* How much that is. *)
Lemma off_is_small (n : nat) (size : R) : 4 * INR n * u <= 1 -> 0 <= size -> off n size <= 4 * INR n * u * (size + 1).
Proof.
  intros Hn Hs. pose proof u_positive as Hu. pose proof eta_positive as He. pose proof eta_below_u as Heu. pose proof (pos_INR n) as H0. unfold off.
  assert (Hg : growth n <= 1 + 4 * INR n * u).
  { pose proof (power_is_small u ltac:(lra) (2 * n)) as H. assert (Htwo : INR (2 * n) = 2 * INR n) by (rewrite mult_INR; simpl; ring).
    rewrite Htwo in H. unfold RoundedEvaluations.growth. specialize (H ltac:(lra)). lra. }
  pose proof (growth_at_least_1 n).
  assert ((growth n - 1) * size <= 4 * INR n * u * size) by (apply Rmult_le_compat_r; lra).
  assert (growth n * eta <= 2 * u) by (apply Rmult_le_compat; lra).
  assert (2 * INR n * (growth n * eta) <= 2 * INR n * (2 * u)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* ---- Sums that lose nothing ------------------------------------------------------------------------------------------------- *)

(* Multiples of 2^e up to 2^(e + precision). *)
Lemma multiples_are_kept (e : Z) (most : R) : (emin + prec - 1 <= e)%Z -> most <= bpow radix2 (e + prec) -> most <= largest ->
  keeps op (bpow radix2 e) most.
Proof.
  intros He Hm Hl z r Hz [Ho|Hr]; [lra|]. apply (floats_are_kept emin prec); [| |exact Hr].
  - destruct (Z.lt_ge_cases (Z.abs z) (2 ^ prec)) as [Hlt|Hge].
    + apply generic_format_FLT. apply (FLT_spec radix2 emin prec _ (Float radix2 z e)).
      * unfold F2R. cbn. ring.
      * exact Hlt.
      * cbn. pose proof precision_positive as Hp. unfold Prec_gt_0 in Hp. lia.
    + assert (Hb : bpow radix2 e * IZR (Z.abs z) <= bpow radix2 (e + prec)).
      { rewrite abs_IZR. rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 e)) in Hz by apply bpow_ge_0. lra. }
      rewrite bpow_plus in Hb. apply Rmult_le_reg_l in Hb; [|apply bpow_gt_0].
      rewrite <- IZR_Zpower in Hb by (pose proof precision_positive; unfold Prec_gt_0 in *; lia). apply le_IZR in Hb. cbn in Hb.
      assert (Hz' : (Z.abs z = 2 ^ prec)%Z) by lia.
      assert (Hpow : generic_format radix2 (FLT_exp emin prec) (bpow radix2 (e + prec)))
        by (apply generic_format_bpow; unfold FLT_exp; pose proof precision_positive; unfold Prec_gt_0 in *; lia).
      assert (Heq : bpow radix2 (e + prec) = bpow radix2 e * IZR (2 ^ prec)).
      { rewrite bpow_plus. f_equal. symmetry. apply (IZR_Zpower radix2). pose proof precision_positive. unfold Prec_gt_0 in *. lia. }
      rewrite Heq in Hpow. destruct (Z.abs_spec z) as [[_ H]|[_ H]]; rewrite H in Hz'.
      * now rewrite Hz'.
      * replace z with (- 2 ^ prec)%Z by lia. rewrite opp_IZR, Ropp_mult_distr_r_reverse. now apply generic_format_opp.
  - destruct (Z.eq_dec z 0) as [->|Hne]; [left; ring|right]. rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 e)) by apply bpow_ge_0.
    apply Rle_trans with (bpow radix2 e); [now apply bpow_le|]. rewrite <- (Rmult_1_r (bpow radix2 e)) at 1.
    apply Rmult_le_compat_l; [apply bpow_ge_0|]. rewrite <- abs_IZR. change 1 with (IZR 1). apply IZR_le. lia.
Qed.

Lemma reads_are_kept (g most v r : R) : keeps op g most -> multiple g v -> Rabs v <= most -> reads op v r -> r = v.
Proof.
  intros Hk [z Hz] Hv [a [b [H1 [H2 H3]]]]. assert (H : forall r, again op v r -> r = v).
  { intros r' [->|Hr]; [reflexivity|]. rewrite Hz in *. now apply Hk. }
  apply H in H1 as ->. apply H in H2 as ->. now apply H in H3.
Qed.

Lemma sum_is_exact (g most : R) (l : list (R * R)) (b r : R) : keeps op g most ->
  (dots op ((1, b) :: l) r \/ exists y z, dots op l y /\ reads op y z /\ op (z + b) r) ->
  Forall (fun '(a, b) => multiple g (a * b)) l -> multiple g b -> size_of_dots l + Rabs b <= most -> r = value_of_dots l + b.
Proof.
  intros Hk H Hf Hb Hs. pose proof (Rabs_pos b). destruct H as [H|[y [z [Hy [Hz Hr]]]]].
  - destruct (dots_are_exact op g most Hk _ _ H) as (-> & _).
    + constructor; [|exact Hf]. now rewrite Rmult_1_l.
    + change (Rabs (1 * b) + size_of_dots l <= most). rewrite Rmult_1_l. lra.
    + change (1 * b + value_of_dots l = value_of_dots l + b). ring.
  - destruct (dots_are_exact op g most Hk _ _ Hy Hf ltac:(lra)) as (-> & Hm & Ha).
    apply (reads_are_kept g most) in Hz as ->; try assumption; [|lra].
    destruct Hm as [n Hn], Hb as [k Hb]. rewrite Hn, Hb in *.
    replace (g * IZR n + g * IZR k) with (g * IZR (n + k)) in * by (rewrite plus_IZR; ring). apply Hk; [|exact Hr].
    rewrite plus_IZR, Rmult_plus_distr_l. apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

(* ---- Matrix products --------------------------------------------------------------------------------------------------------- *)

(* y stands for the number v: whatever is read of it is in the format and off by at most e. *)
Definition stands (v y e : R) : Prop := forall r, reads op y r -> Rabs r <= largest /\ Rabs (r - v) <= e.

Lemma reads_itself (v : R) : reads op v v.
Proof. exists v, v. repeat split; now left. Qed.

Lemma stands_still (v y e : R) : stands v y e -> Rabs y <= largest /\ Rabs (y - v) <= e.
Proof. intros H. apply H, reads_itself. Qed.

Lemma stands_exactly (v y r : R) : stands v y 0 -> reads op y r -> r = v.
Proof. intros H Hr. apply H in Hr as [_ Hr]. revert Hr. unfold Rabs. destruct (Rcase_abs _); lra. Qed.

(* A number of the format, normal or 0, stands for itself. *)
Lemma number_stands (v : R) : generic_format radix2 (FLT_exp emin prec) v -> v = 0 \/ bpow radix2 (emin + prec - 1) <= Rabs v ->
  Rabs v <= largest -> stands v v 0.
Proof.
  intros Hf Hn Hl r [a [b [H1 [H2 H3]]]]. assert (H : forall r, again op v r -> r = v).
  { intros r' [->|Hr]; [reflexivity|]. apply (floats_are_kept emin prec); try assumption. now apply operates_computes. }
  apply H in H1 as ->. apply H in H2 as ->. apply H in H3 as ->. split; [exact Hl|]. replace (v - v) with 0 by ring. rewrite Rabs_R0. lra.
Qed.

Lemma operates_sign (v r : R) : 0 <= v -> Rabs v <= largest -> op v r -> 0 <= r.
Proof.
  intros Hv Hl H. apply operates_computes in H; [|exact Hl]. destruct H as [(emin' & prec' & rnd & He & Hp & Hrnd & ->)|[_ ->]]; [|lra].
  apply round_ge_generic; [|exact Hrnd|apply generic_format_0|exact Hv].
  apply FLT_exp_valid. pose proof precision_positive. unfold Prec_gt_0 in *. lia.
Qed.

Lemma relu_stands (v y e : R) : stands v y e -> stands (Rmax 0 v) (Rmax 0 y) e.
Proof.
  intros H r Hr. pose proof (stands_still v y e H) as [Hy Hv].
  destruct (Rle_or_lt 0 y) as [Hpos|Hneg].
  - rewrite Rmax_right in Hr by exact Hpos. pose proof (H r Hr) as [Hl Hoff]. split; [exact Hl|].
    enough (0 <= r) by (unfold Rmax; destruct (Rle_dec 0 v); [exact Hoff|]; revert Hoff; unfold Rabs; destruct (Rcase_abs _), (Rcase_abs _); lra).
    destruct Hr as [a [b [H1 [H2 H3]]]].
    assert (Hstep : forall w z, 0 <= w -> Rabs w <= largest -> again op w z -> 0 <= z).
    { intros w z Hw Hwl [->|Hz]; [exact Hw|]. now apply (operates_sign w). }
    assert (Ha : 0 <= a) by now apply (Hstep y).
    assert (Hal : Rabs a <= largest) by (apply (H a); exists a, a; repeat split; try (now left); exact H1).
    assert (Hb : 0 <= b) by now apply (Hstep a).
    assert (Hbl : Rabs b <= largest) by (apply (H b); exists a, b; repeat split; try (now left); assumption).
    now apply (Hstep b).
  - rewrite Rmax_left in Hr by lra.
    assert (r = 0) as ->.
    { assert (Hk : keeps op (bpow radix2 (emin + prec - 1)) 0).
      { apply multiples_are_kept; [lia|apply bpow_ge_0|]. pose proof (Rabs_pos y). lra. }
      apply (reads_are_kept (bpow radix2 (emin + prec - 1)) 0 0 r Hk); [exists 0%Z; ring|rewrite Rabs_R0; lra|exact Hr]. }
    pose proof (Rabs_pos y). rewrite Rabs_R0. split; [lra|]. revert Hv. unfold Rmax. destruct (Rle_dec 0 v).
    + unfold Rabs. destruct (Rcase_abs _), (Rcase_abs _); lra.
    + intros Hv. replace (0 - 0) with 0 by ring. rewrite Rabs_R0. pose proof (Rabs_pos (y - v)). lra.
Qed.

Lemma Rabs_sum (n : nat) (g : nat -> R) : Rabs (sum n g) <= sum n (fun j => Rabs (g j)).
Proof. induction n as [|n IH]; cbn [sum]; [rewrite Rabs_R0; lra|]. apply Rle_trans with (1 := Rabs_triang _ _). lra. Qed.

Lemma sum_minus (n : nat) (g h : nat -> R) : sum n g - sum n h = sum n (fun j => g j - h j).
Proof. induction n as [|n IH]; cbn [sum]; lra. Qed.

(* What the factors of a product bring along. *)
Definition inherited (n : nat) (g h eg eh : nat -> R) : R := sum n (fun j => eg j * (Rabs (h j) + eh j) + Rabs (g j) * eh j).
Definition sizes (n : nat) (g h eg eh : nat -> R) : R := sum n (fun j => (Rabs (g j) + eg j) * (Rabs (h j) + eh j)).
(* The roundings of a sum of n products and one number, stored and read. *)
Definition noise (n : nat) (size : R) : R := 4 * INR (n + 7) * u * (size + 1).

Section Factors.
Variable n : nat.
Variables g h cg ch eg eh : nat -> R.
Hypothesis stands_g : forall j, (j < n)%nat -> stands (g j) (cg j) (eg j).
Hypothesis stands_h : forall j, (j < n)%nat -> stands (h j) (ch j) (eh j).

Lemma errors_nonnegative (j : nat) : (j < n)%nat -> 0 <= eg j /\ 0 <= eh j.
Proof.
  intros Hj. destruct (stands_still _ _ _ (stands_g j Hj)) as [_ H1], (stands_still _ _ _ (stands_h j Hj)) as [_ H2].
  pose proof (Rabs_pos (cg j - g j)). pose proof (Rabs_pos (ch j - h j)). lra.
Qed.

Variables g' h' : nat -> R.
Hypothesis are_read : forall j, (j < n)%nat -> reads op (cg j) (g' j) /\ reads op (ch j) (h' j).

Lemma read_products_are_off : size_of_dots (products n g' h') <= sizes n g h eg eh /\
  Rabs (value_of_dots (products n g' h') - sum n (fun j => g j * h j)) <= inherited n g h eg eh.
Proof.
  assert (H : forall j, (j < n)%nat -> Rabs (g' j) <= Rabs (g j) + eg j /\ Rabs (h' j) <= Rabs (h j) + eh j /\
    Rabs (g' j * h' j - g j * h j) <= eg j * (Rabs (h j) + eh j) + Rabs (g j) * eh j).
  { intros j Hj. destruct (are_read j Hj) as [Hg Hh]. apply (stands_g j Hj) in Hg as [_ Hg]. apply (stands_h j Hj) in Hh as [_ Hh].
    assert (Hh' : Rabs (h' j) <= Rabs (h j) + eh j).
    { replace (h' j) with (h j + (h' j - h j)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. }
    split; [|split; [exact Hh'|]].
    - replace (g' j) with (g j + (g' j - g j)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra.
    - replace (g' j * h' j - g j * h j) with ((g' j - g j) * h' j + g j * (h' j - h j)) by ring.
      apply Rle_trans with (1 := Rabs_triang _ _). rewrite !Rabs_mult. pose proof (Rabs_pos (g j)). pose proof (Rabs_pos (h' j)).
      pose proof (Rabs_pos (g' j - g j)). apply Rplus_le_compat; [apply Rmult_le_compat; lra|apply Rmult_le_compat_l; lra]. }
  split.
  - rewrite size_of_products. apply sum_le. intros j Hj. destruct (H j Hj) as (H1 & H2 & _). rewrite Rabs_mult.
    apply Rmult_le_compat; try assumption; apply Rabs_pos.
  - rewrite value_of_products, sum_minus. apply Rle_trans with (1 := Rabs_sum _ _). apply sum_le. intros j Hj. now apply H.
Qed.
End Factors.

Lemma noise_covers (n m : nat) (size more : R) : (m <= n + 7)%nat -> 4 * INR (n + 7) * u <= 1 -> 0 <= size <= more -> off m size <= noise n more.
Proof.
  intros Hm Hu Hs. apply Rle_trans with (off (n + 7) more); [now apply off_grows|]. unfold noise.
  apply off_is_small; [exact Hu|lra].
Qed.

Lemma length_of_products (n : nat) (g h : nat -> R) : length (products n g h) = n.
Proof. unfold products. now rewrite map_length, seq_length. Qed.

Lemma closer (v w r e o : R) : Rabs (r - w) <= o -> Rabs (w - v) <= e -> Rabs (r - v) <= e + o.
Proof. intros H1 H2. replace (r - v) with ((r - w) + (w - v)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. Qed.

Lemma product_stands (n : nat) (g h cg ch eg eh : nat -> R) (y size : R) :
  (forall j, (j < n)%nat -> stands (g j) (cg j) (eg j)) -> (forall j, (j < n)%nat -> stands (h j) (ch j) (eh j)) ->
  product op n cg ch y -> sizes n g h eg eh <= size -> 4 * INR (n + 7) * u <= 1 -> size + noise n size <= largest ->
  stands (sum n (fun j => g j * h j)) y (inherited n g h eg eh + noise n size).
Proof.
  intros Hg Hh [g' [h' [Hr Hy]]] Hs Hu Hl r Hread. destruct (read_products_are_off n g h cg ch eg eh Hg Hh g' h' Hr) as [Hsize Hvalue].
  set (l := products n g' h') in *. pose proof (size_nonnegative l) as Hl0. pose proof (value_at_most_size l) as Hv.
  assert (Hn : length l = n) by apply length_of_products.
  pose proof (noise_covers n n (size_of_dots l) size ltac:(lia) Hu ltac:(lra)) as H1.
  pose proof (noise_covers n (n + 3) (size_of_dots l) size ltac:(lia) Hu ltac:(lra)) as H2.
  apply dots_are_off in Hy; rewrite Hn in *; [|lra].
  apply (reads_are_near (value_of_dots l) y r (size_of_dots l) n) in Hread; [|exact Hy|exact Hv|lra]. split.
  - replace r with ((r - value_of_dots l) + value_of_dots l) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra.
  - apply (closer _ (value_of_dots l)); [lra|exact Hvalue].
Qed.

Lemma product_plus_stands (n : nat) (g h cg ch eg eh : nat -> R) (b cb y size : R) :
  (forall j, (j < n)%nat -> stands (g j) (cg j) (eg j)) -> (forall j, (j < n)%nat -> stands (h j) (ch j) (eh j)) -> stands b cb 0 ->
  product_plus op n cg ch cb y -> sizes n g h eg eh + Rabs b <= size -> 4 * INR (n + 7) * u <= 1 -> size + noise n size <= largest ->
  stands (sum n (fun j => g j * h j) + b) y (inherited n g h eg eh + noise n size).
Proof.
  intros Hg Hh Hb [g' [h' [b' [Hr [Hb' Hy]]]]] Hs Hu Hl r Hread.
  destruct (read_products_are_off n g h cg ch eg eh Hg Hh g' h' Hr) as [Hsize Hvalue]. apply (stands_exactly b cb b' Hb) in Hb' as ->.
  set (l := products n g' h') in *. pose proof (size_nonnegative l) as Hl0. pose proof (value_at_most_size l) as Hv. pose proof (Rabs_pos b) as Hb0.
  assert (Hn : length l = n) by apply length_of_products.
  pose proof (noise_covers n (n + 4) (size_of_dots l + Rabs b) size ltac:(lia) Hu ltac:(lra)) as H1.
  pose proof (noise_covers n (n + 4 + 3) (size_of_dots l + Rabs b) size ltac:(lia) Hu ltac:(lra)) as H2.
  apply sum_is_off in Hy; rewrite Hn in *; [|lra].
  assert (Hvb : Rabs (value_of_dots l + b) <= size_of_dots l + Rabs b) by (apply Rle_trans with (1 := Rabs_triang _ _); lra).
  apply (reads_are_near (value_of_dots l + b) y r (size_of_dots l + Rabs b) (n + 4)) in Hread; [|exact Hy|exact Hvb|lra]. split.
  - replace r with ((r - (value_of_dots l + b)) + (value_of_dots l + b)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra.
  - apply (closer _ (value_of_dots l + b)); [lra|].
    replace (value_of_dots l + b - (sum n (fun j => g j * h j) + b)) with (value_of_dots l - sum n (fun j => g j * h j)) by ring. exact Hvalue.
Qed.

(* Where nothing is lost: all terms are multiples of 2^e, and the sum of their sizes is at most 2^(e + precision). *)
Definition fits_unit (e : Z) (size : R) : Prop := (emin + prec - 1 <= e)%Z /\ size <= bpow radix2 (e + prec) /\ size <= largest.

Lemma kept_stands (e : Z) (v y size : R) : fits_unit e size -> y = v -> multiple (bpow radix2 e) v -> Rabs v <= size -> stands v y 0.
Proof.
  intros (He & Hs & Hl) -> Hm Hv r Hr. apply (reads_are_kept (bpow radix2 e) size) in Hr as ->; try assumption.
  - replace (v - v) with 0 by ring. rewrite Rabs_R0. lra.
  - now apply multiples_are_kept.
Qed.

Lemma read_products (n : nat) (g h cg ch g' h' : nat -> R) :
  (forall j, (j < n)%nat -> stands (g j) (cg j) 0) -> (forall j, (j < n)%nat -> stands (h j) (ch j) 0) ->
  (forall j, (j < n)%nat -> reads op (cg j) (g' j) /\ reads op (ch j) (h' j)) -> products n g' h' = products n g h.
Proof.
  intros Hg Hh Hr. apply products_same. intros j Hj. destruct (Hr j Hj) as [H1 H2].
  split; [now apply (stands_exactly _ (cg j)); [apply Hg|]|now apply (stands_exactly _ (ch j)); [apply Hh|]].
Qed.

Lemma product_stands_exactly (e : Z) (n : nat) (g h cg ch : nat -> R) (y size : R) :
  (forall j, (j < n)%nat -> stands (g j) (cg j) 0) -> (forall j, (j < n)%nat -> stands (h j) (ch j) 0) ->
  product op n cg ch y -> (forall j, (j < n)%nat -> multiple (bpow radix2 e) (g j * h j)) ->
  sum n (fun j => Rabs (g j * h j)) <= size -> fits_unit e size -> stands (sum n (fun j => g j * h j)) y 0.
Proof.
  intros Hg Hh [g' [h' [Hr Hy]]] Hm Hs Hf. rewrite (read_products n g h cg ch g' h' Hg Hh Hr) in Hy.
  assert (Hk : keeps op (bpow radix2 e) size) by (destruct Hf as (H1 & H2 & H3); now apply multiples_are_kept).
  destruct (dots_are_exact op _ size Hk _ _ Hy) as (Hv & Hmy & Hy'); [now apply products_multiple|now rewrite size_of_products|].
  rewrite value_of_products in Hv. rewrite size_of_products in Hy'. subst y. apply (kept_stands e _ _ size Hf eq_refl Hmy). lra.
Qed.

Lemma product_plus_stands_exactly (e : Z) (n : nat) (g h cg ch : nat -> R) (b cb y size : R) :
  (forall j, (j < n)%nat -> stands (g j) (cg j) 0) -> (forall j, (j < n)%nat -> stands (h j) (ch j) 0) -> stands b cb 0 ->
  product_plus op n cg ch cb y -> (forall j, (j < n)%nat -> multiple (bpow radix2 e) (g j * h j)) -> multiple (bpow radix2 e) b ->
  sum n (fun j => Rabs (g j * h j)) + Rabs b <= size -> fits_unit e size -> stands (sum n (fun j => g j * h j) + b) y 0.
Proof.
  intros Hg Hh Hb [g' [h' [b' [Hr [Hb' Hy]]]]] Hm Hmb Hs Hf. rewrite (read_products n g h cg ch g' h' Hg Hh Hr) in Hy.
  apply (stands_exactly b cb b' Hb) in Hb' as ->.
  assert (Hk : keeps op (bpow radix2 e) size) by (destruct Hf as (H1 & H2 & H3); now apply multiples_are_kept).
  apply (sum_is_exact _ size _ _ _ Hk) in Hy; [|now apply products_multiple|exact Hmb|now rewrite size_of_products].
  rewrite value_of_products in Hy. subst y.
  apply (kept_stands e _ _ size Hf eq_refl).
  - assert (Hsum : multiple (bpow radix2 e) (sum n (fun j => g j * h j))).
    { clear -Hm. induction n as [|n IH]; cbn [sum]; [exists 0%Z; ring|]. destruct (IH ltac:(intros; apply Hm; lia)) as [z ->], (Hm n ltac:(lia)) as [k ->].
      exists (z + k)%Z. rewrite plus_IZR. ring. }
    destruct Hsum as [z ->], Hmb as [k ->]. exists (z + k)%Z. rewrite plus_IZR. ring.
  - pose proof (Rabs_sum n (fun j => g j * h j)). apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

(* ---- Scores divided by a root --------------------------------------------------------------------------------------------- *)

Lemma u_is_small : 128 * u <= 1.
Proof.
  unfold unit_roundoff. apply Rle_trans with (128 * bpow radix2 (-7)); [|cbn; lra].
  apply Rmult_le_compat_l; [lra|]. apply bpow_le. now destruct f.
Qed.

(* A result that is stored and read again is off by the roundings of four operations. *)
Lemma stored_and_read (v z r size : R) : op v z -> reads op z r -> Rabs v <= size -> size + 16 * u * (size + 1) <= largest ->
  Rabs (r - v) <= 16 * u * (size + 1).
Proof.
  intros Hz Hr Hv Hl. pose proof (Rabs_pos v) as H0. pose proof u_is_small as Hu. pose proof u_positive.
  assert (Ho : off 4 size <= 16 * u * (size + 1)).
  { pose proof (off_is_small 4 size ltac:(simpl INR; lra) ltac:(lra)) as H4. simpl INR in H4. lra. }
  pose proof (off_grows 0 4 size size ltac:(lia) ltac:(lra)) as H1. pose proof (off_grows 0 0 size size ltac:(lia) ltac:(lra)) as H2.
  apply (operation_is_near v v z size 0) in Hz; [|replace (v - v) with 0 by ring; rewrite Rabs_R0; lra|exact Hv|lra].
  apply (reads_are_near v z r size 1) in Hr; [|exact Hz|exact Hv|cbn [Nat.add]; lra]. cbn [Nat.add] in Hr. lra.
Qed.

Lemma inverse_is_near (q root : R) : 1 <= q -> Rabs (root - q) <= 16 * u * (q + 1) ->
  Rabs (/ root - / q) <= 43 * u /\ 0 < / root <= 4 / 3.
Proof.
  intros Hq Hr. pose proof u_is_small as Hu. pose proof u_positive as Hu0.
  assert (Hr' : Rabs (root - q) <= 32 * u * q) by (assert (u * 1 <= u * q) by (apply Rmult_le_compat_l; lra); lra).
  assert (Hquarter : 32 * u * q <= 1 / 4 * q) by (apply Rmult_le_compat_r; lra).
  assert (Hroot : 3 / 4 * q <= root) by (revert Hr'; unfold Rabs; destruct (Rcase_abs _); lra).
  assert (Hpos : 0 < / root) by (apply Rinv_0_lt_compat; lra).
  assert (Hbelow : / root <= 4 / 3 * / q) by (replace (4 / 3 * / q) with (/ (3 / 4 * q)) by (field; lra); apply Rinv_le; lra).
  assert (Hq1 : 0 < / q) by (apply Rinv_0_lt_compat; lra). assert (Hq2 : / q <= 1) by (rewrite <- Rinv_1; apply Rinv_le; lra).
  split; [|lra]. replace (/ root - / q) with ((q - root) * (/ root * / q)) by (field; lra).
  rewrite Rabs_mult, (Rabs_minus_sym q), (Rabs_pos_eq (/ root * / q)) by (apply Rmult_le_pos; lra).
  apply Rle_trans with (32 * u * q * (4 / 3 * / q * / q)).
  - apply Rmult_le_compat; [apply Rabs_pos|apply Rmult_le_pos; lra|exact Hr'|apply Rmult_le_compat_r; lra].
  - replace (32 * u * q * (4 / 3 * / q * / q)) with (128 / 3 * u * / q) by (field; lra).
    apply Rle_trans with (128 / 3 * u * 1); [apply Rmult_le_compat_l; lra|lra].
Qed.

(* Where the root and its inverse are numbers of the format. *)
Lemma divided_stands_exactly (m : model) (s v y size : R) (e : Z) : let q := sqrt (INR (d m)) in
  kind m <> Parity -> q <> 0 -> stands q q 0 -> stands (/ q) (/ q) 0 -> stands s v 0 -> divided op m v y ->
  fits_unit e size -> multiple (bpow radix2 e) (s / q) -> Rabs (s / q) <= size -> stands (s / q) y 0.
Proof.
  intros q Hkind Hq Hroot Hinverse Hs Hy Hfit Hm Hsize.
  assert (once : forall a b, op a b -> reads op a b) by (intros a b H; exists a, a; repeat split; (now left) || now right).
  assert (Hop : op (s / q) y).
  { unfold divided in Hy. destruct (kind m); try (now contradiction Hkind); destruct Hy as (w & z & root & Hw & Hz & Hr & Hy);
      apply (stands_exactly s v w Hs) in Hw as ->; apply once, (stands_exactly q q z Hroot) in Hz as ->;
      apply (stands_exactly q q root Hroot) in Hr as ->; (destruct Hy as [Hy|(z' & inv & Hz' & Hinv & Hy)]; [exact Hy|]);
      apply once, (stands_exactly (/ q) (/ q) z' Hinverse) in Hz' as ->;
      apply (stands_exactly (/ q) (/ q) inv Hinverse) in Hinv as ->; exact Hy. }
  apply (kept_stands e _ _ size Hfit); [|exact Hm|exact Hsize].
  destruct Hfit as (H1 & H2 & H3). destruct Hm as [z Hz]. rewrite Hz in *. now apply (multiples_are_kept e size).
Qed.

(* c is the root's inverse, rounded down. What comes out is off from the quotient, and that from s * c, by this much together. *)
Lemma divided_stands (m : model) (s v y e c : R) : let q := sqrt (INR (d m)) in let near := 128 * u in let size := (Rabs s + e) * (c + near) in
  kind m <> Parity -> (1 <= d m)%nat -> 4 * INR (d m) <= largest -> 0 <= c <= / q -> / q <= c + u / 2 ->
  stands s v e -> divided op m v y -> size + noise 0 size <= largest ->
  stands (s / q) y (e * c + (Rabs s + e) * near + noise 0 size - Rabs (s * c - s / q)).
Proof.
  intros q near size Hkind Hd Hl [Hc0 Hc1] Hc2 Hs Hy Hsize. pose proof u_is_small as Hu. pose proof u_positive as Hu0.
  assert (Hd1 : 1 <= INR (d m)) by (change 1 with (INR 1); now apply le_INR).
  assert (Hq : 1 <= q) by (unfold q; rewrite <- sqrt_1; apply sqrt_le_1; lra).
  assert (Hqd : q <= INR (d m)) by (rewrite <- (sqrt_sqrt (INR (d m))) by lra; fold q; replace q with (1 * q) at 1 by ring; apply Rmult_le_compat_r; lra).
  assert (Huq : u * (q + 1) <= 1 / 128 * (q + q)) by (apply Rmult_le_compat; lra).
  assert (Hdiv : exists w root, reads op v w /\ Rabs (root - q) <= 16 * u * (q + 1) /\
    (op (w / root) y \/ exists z inverse, op (/ root) z /\ reads op z inverse /\ op (w * inverse) y)).
  { unfold divided in Hy. destruct (kind m); try (now contradiction Hkind); destruct Hy as (w & z & root & Hw & Hz & Hroot & Hy);
      exists w, root; (split; [exact Hw|split; [|exact Hy]]);
      apply (stored_and_read q z root q); try assumption; try (rewrite Rabs_pos_eq; lra); fold q; lra. }
  clear Hy. destruct Hdiv as (w & root & Hw & Hroot & Hy).
  destruct (inverse_is_near q root Hq Hroot) as [Hinv [Hpos Htop]].
  assert (Hfactor : exists inv, op (w * inv) y /\ Rabs (inv - / q) <= 81 * u).
  { destruct Hy as [Hy|(z & inv & Hz & Hread & Hy)]; [exists (/ root); split; [exact Hy|lra]|exists inv; split; [exact Hy|]].
    pose proof (stored_and_read (/ root) z inv (4 / 3) Hz Hread ltac:(rewrite Rabs_pos_eq; lra) ltac:(lra)).
    replace (inv - / q) with ((inv - / root) + (/ root - / q)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. }
  clear Hy. destruct Hfactor as (inv & Hy & Hnear). destruct (Hs w Hw) as [_ Hoff].
  assert (Hmost : Rabs w <= Rabs s + e) by (replace w with (s + (w - s)) by ring; apply Rle_trans with (1 := Rabs_triang _ _); lra).
  pose proof (Rabs_pos w) as Hw0. pose proof (Rabs_pos s) as Hs0. pose proof (Rabs_pos (w - s)) as He0.
  assert (Hinv' : Rabs inv <= c + near).
  { replace inv with ((inv - / q) + / q) by ring. apply Rle_trans with (1 := Rabs_triang _ _). rewrite (Rabs_pos_eq (/ q)) by lra. unfold near. lra. }
  assert (Hwi : Rabs (w * inv) <= size) by (rewrite Rabs_mult; apply Rmult_le_compat; (assumption || apply Rabs_pos)).
  intros r Hr. pose proof (Rabs_pos (w * inv)) as Hwi0.
  assert (Hn : 16 * u * (size + 1) <= noise 0 size).
  { unfold noise. simpl INR. apply Rmult_le_compat_r; lra. }
  pose proof (stored_and_read (w * inv) y r size Hy Hr Hwi ltac:(lra)) as Hlast.
  split.
  - replace r with ((r - w * inv) + w * inv) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra.
  - assert (H1 : Rabs (w * inv - s / q) <= (Rabs s + e) * (81 * u) + e * (c + u / 2)).
    { replace (w * inv - s / q) with (w * (inv - / q) + (w - s) * / q) by (unfold Rdiv; ring). apply Rle_trans with (1 := Rabs_triang _ _).
      rewrite !Rabs_mult, (Rabs_pos_eq (/ q)) by lra. apply Rplus_le_compat; apply Rmult_le_compat; try lra; try apply Rabs_pos. }
    assert (H2 : Rabs (s * c - s / q) <= Rabs s * (u / 2)).
    { replace (s * c - s / q) with (s * (c - / q)) by (unfold Rdiv; ring). rewrite Rabs_mult. apply Rmult_le_compat_l; [lra|].
      unfold Rabs. destruct (Rcase_abs _); lra. }
    assert (H3 : 0 <= (Rabs s + e) * u) by (apply Rmult_le_pos; lra).
    replace (r - s / q) with ((r - w * inv) + (w * inv - s / q)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). unfold near. lra.
Qed.
End Format.

(* There is a run wherever operations have results: no theorem about runs is about nothing. *)
Lemma some_dots (result : R -> R -> Prop) (op : R -> R) : (forall v, result v (op v)) -> forall l, exists r, dots result l r.
Proof.
  intros H l. induction l as [|[a b] l [r Hr]]; [exists 0; constructor|]. exists (op (a * b + r)). now apply (dots_fused _ a b l r).
Qed.

Theorem some_run (f : format) (m : model) (x : list nat) (i : nat) :
  exists query key score mixed sums logits, run (operates f) m x i query key score mixed sums logits.
Proof.
  assert (H : forall v, operates f v (round radix2 (FLT_exp (least_exponent f) (precision f)) ZnearestE v)).
  { intros v. right. left. exists (least_exponent f), (precision f), ZnearestE. repeat split; try lia; try apply valid_rnd_N. }
  assert (Hp : forall n g h, exists r, product (operates f) n g h r).
  { intros n g h. destruct (some_dots _ _ H (products n g h)) as [r Hr]. exists r, g, h. split; [|exact Hr]. intros; split; apply reads_itself. }
  assert (Hb : forall n g h b, exists r, product_plus (operates f) n g h b r).
  { intros n g h b. destruct (some_dots _ _ H ((1, b) :: products n g h)) as [r Hr]. exists r, g, h, b. split; [intros; split; apply reads_itself|].
    split; [apply reads_itself|now left]. }
  assert (choice : forall P : nat -> R -> Prop, forall n, (forall c, exists r, P c r) -> exists g, forall c, (c < n)%nat -> P c (g c)).
  { intros P n HP. induction n as [|n [g Hg]]; [exists (fun _ => 0); lia|]. destruct (HP n) as [r Hr].
    exists (fun c => if (c =? n)%nat then r else g c). intros c Hc. destruct (Nat.eqb_spec c n) as [->|Hne]; [exact Hr|apply Hg; lia]. }
  destruct (choice _ (d m) (fun c => Hp (d m) (embedding m (nth i x O)) (fun j => at2 (W_Q m) j c))) as [query Hq].
  assert (Hk : exists key, forall s c, (s < L m)%nat -> (c < d m)%nat ->
    product (operates f) (d m) (embedding m (nth s x O)) (fun j => at2 (W_K m) j c) (key s c)).
  { induction (L m) as [|n [key Hkey]]; [exists (fun _ _ => 0); lia|].
    destruct (choice _ (d m) (fun c => Hp (d m) (embedding m (nth n x O)) (fun j => at2 (W_K m) j c))) as [row Hrow].
    exists (fun s c => if (s =? n)%nat then row c else key s c). intros s c Hs Hc.
    destruct (Nat.eqb_spec s n) as [->|Hne]; [now apply Hrow|apply Hkey; lia]. }
  destruct Hk as [key Hk].
  assert (Hdiv : forall v, exists r, divided (operates f) m v r).
  { intros v. unfold divided. destruct (kind m); try (now exists v); (eexists; exists v; do 2 eexists;
      split; [apply reads_itself|split; [apply H|split; [apply reads_itself|left; apply H]]]). }
  assert (Hscore : forall s, exists r, exists v, product (operates f) (d m) query (key s) v /\ divided (operates f) m v r).
  { intros s. destruct (Hp (d m) query (key s)) as [v Hv], (Hdiv v) as [r Hr]. now exists r, v. }
  destruct (choice _ (L m) Hscore) as [score Hs].
  destruct (choice _ (d m) (fun c => Hb (L m) score (fun s => embedding m (nth s x O) c) (embedding m (nth i x O) c))) as [mixed Hm].
  destruct (choice _ (p m) (fun n => Hb (d m) mixed (fun c => at2 (W_1 m) c n) (at1 (b_1 m) n))) as [sums Hn].
  destruct (choice _ (classes m) (fun c => Hb (p m) (fun n => Rmax 0 (sums n)) (fun n => at2 (W_2 m) n c) (at1 (b_2 m) c))) as [logits Hl].
  exists query, key, score, mixed, sums, logits. now repeat split.
Qed.
