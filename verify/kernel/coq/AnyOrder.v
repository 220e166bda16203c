(* Rounded sums in any order and any grouping, for every floating-point format with gradual underflow (Flocq's FLT).

   No model is evaluated here: Evaluations.v and RoundedEvaluations.v do, with sums of products, some of them fused. *)

From Coq Require Import Reals List ZArith Lia Lra Permutation.
From Flocq Require Import Core Plus_error Relative.
From Weightproof Require Import Model Sums Regions.
Import ListNotations.
Open Scope R_scope.

Section AnyOrder.
Variables emin prec : Z.
Context { prec_gt_0_ : Prec_gt_0 prec }.
Variable choice : Z -> bool. (* what happens at ties *)

Local Notation fexp := (FLT_exp emin prec).
Local Notation rounded := (round radix2 fexp (Znearest choice)).
Local Notation is_float := (generic_format radix2 fexp).

(* The unit roundoff 2^-prec. *)
Definition u : R := / 2 * bpow radix2 (- prec + 1).

(* r is a result of adding up the numbers l: of one number itself, of more the rounded sum of the results of two parts,
   and the numbers may come in any order. *)
Inductive adds_up : list R -> R -> Prop :=
| adds_one : forall x, adds_up [x] x
| adds_two : forall k l r s, adds_up k r -> adds_up l s -> adds_up (k ++ l) (rounded (r + s))
| adds_in_any_order : forall k l r, Permutation k l -> adds_up k r -> adds_up l r.

Definition absolute (l : list R) : R := total (map Rabs l).

Lemma absolute_nonnegative (l : list R) : 0 <= absolute l.
Proof. unfold absolute. induction l as [|x l IH]; simpl; [lra|]. pose proof (Rabs_pos x). lra. Qed.

Lemma total_any_order (k l : list R) : Permutation k l -> total k = total l.
Proof. intros H. rewrite <- (map_id k), <- (map_id l). now apply total_permutation. Qed.

Lemma adds_up_is_float (l : list R) (r : R) : adds_up l r -> Forall is_float l -> is_float r.
Proof.
  induction 1 as [x|k l r s Hk IHk Hl IHl|k l r Hp Hk IH]; intros Hf.
  - now inversion Hf.
  - apply generic_format_round; [apply FLT_exp_valid; exact prec_gt_0_|apply valid_rnd_N].
  - apply IH. apply (Permutation_Forall' is_float l k); [now apply Permutation_sym|exact Hf].
Qed.

Lemma adds_up_not_empty (l : list R) (r : R) : adds_up l r -> (1 <= length l)%nat.
Proof.
  induction 1 as [x|k l r s Hk IHk Hl IHl|k l r Hp Hk IH]; simpl; [lia| |].
  - rewrite app_length. lia.
  - now rewrite <- (Permutation_length Hp).
Qed.

Lemma u_nonnegative : 0 <= u.
Proof. unfold u. pose proof (bpow_ge_0 radix2 (- prec + 1)). lra. Qed.

(* One rounded addition of two floats is off by a factor 1 + eps, underflow or not. *)
Lemma rounded_addition (x y : R) : is_float x -> is_float y ->
  Rabs (rounded (x + y) - (x + y)) <= u * Rabs (x + y).
Proof.
  intros Hx Hy.
  destruct (FLT_plus_error_N_ex radix2 emin prec choice x y Hx Hy) as [eps [Heps Heq]].
  rewrite Heq. replace ((x + y) * (1 + eps) - (x + y)) with (eps * (x + y)) by ring.
  rewrite Rabs_mult. apply Rmult_le_compat_r; [apply Rabs_pos|].
  apply Rle_trans with (1 := Heps). unfold u_ro. fold u. pose proof u_nonnegative.
  apply Rmult_le_reg_r with (1 + u); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; nra.
Qed.

(* For every order and grouping, the sum of n floats is off by at most ((1 + u)^(n - 1) - 1) times the sum of their
   absolute values. *)
Theorem any_order (l : list R) (r : R) : adds_up l r -> Forall is_float l ->
  Rabs (r - total l) <= ((1 + u) ^ (length l - 1) - 1) * absolute l.
Proof.
  pose proof u_nonnegative as Hu.
  assert (Hpow : forall n, 1 <= (1 + u) ^ n) by (intros n; apply pow_R1_Rle; lra).
  induction 1 as [x|k l r s Hk IHk Hl IHl|k l r Hp Hk IH]; intros Hf.
  - cbn [total fold_right length]. rewrite Nat.sub_diag. replace (x - (x + 0)) with 0 by lra. rewrite Rabs_R0. simpl. lra.
  - apply Forall_app in Hf as [Hfk Hfl]. specialize (IHk Hfk). specialize (IHl Hfl).
    pose proof (rounded_addition r s (adds_up_is_float k r Hk Hfk) (adds_up_is_float l s Hl Hfl)) as Hround.
    pose proof (adds_up_not_empty k r Hk) as Hnk. pose proof (adds_up_not_empty l s Hl) as Hnl.
    rewrite total_app, app_length. unfold absolute. rewrite map_app, total_app. fold (absolute k) (absolute l).
    pose proof (absolute_nonnegative k) as Hak. pose proof (absolute_nonnegative l) as Hal.
    set (n := (length k - 1)%nat) in *. set (o := (length l - 1)%nat) in *.
    replace (length k + length l - 1)%nat with (S (n + o)) by lia.
    set (q := (1 + u) ^ (n + o)).
    assert (Hqn : (1 + u) ^ n <= q) by (apply Rle_pow; [lra|lia]).
    assert (Hqo : (1 + u) ^ o <= q) by (apply Rle_pow; [lra|lia]).
    assert (Htot : forall l', Rabs (total l') <= absolute l').
    { unfold absolute. induction l' as [|x l' IH]; simpl; [rewrite Rabs_R0; lra|].
      apply Rle_trans with (1 := Rabs_triang _ _). lra. }
    pose proof (Htot k) as Htk. pose proof (Htot l) as Htl.
    assert (Hk' : Rabs (r - total k) <= (q - 1) * absolute k) by (apply Rle_trans with (1 := IHk); apply Rmult_le_compat_r; lra).
    assert (Hl' : Rabs (s - total l) <= (q - 1) * absolute l) by (apply Rle_trans with (1 := IHl); apply Rmult_le_compat_r; lra).
    assert (Hrs : Rabs (r + s - (total k + total l)) <= (q - 1) * (absolute k + absolute l)).
    { replace (r + s - (total k + total l)) with ((r - total k) + (s - total l)) by ring.
      apply Rle_trans with (1 := Rabs_triang _ _). lra. }
    assert (Hsum : Rabs (r + s) <= q * (absolute k + absolute l)).
    { replace (r + s) with ((r + s - (total k + total l)) + (total k + total l)) by ring.
      apply Rle_trans with (1 := Rabs_triang _ _). pose proof (Rabs_triang (total k) (total l)). lra. }
    replace (rounded (r + s) - (total k + total l))
      with ((rounded (r + s) - (r + s)) + (r + s - (total k + total l))) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _). cbn [pow]. fold q.
    assert (u * Rabs (r + s) <= u * (q * (absolute k + absolute l))) by (apply Rmult_le_compat_l; assumption). lra.
  - rewrite <- (total_any_order k l Hp), <- (Permutation_length Hp).
    replace (absolute l) with (absolute k) by (unfold absolute; now apply total_permutation).
    apply IH. apply (Permutation_Forall' is_float l k); [now apply Permutation_sym|exact Hf].
Qed.

(* Integers whose absolute values add up to less than 2^prec are added without any error, in every order. *)
Theorem integers_are_exact (l : list R) (r : R) : (emin <= 0)%Z -> adds_up l r ->
  forall zs : list Z, l = map IZR zs -> absolute l < bpow radix2 prec -> r = total l.
Proof.
  intros Hemin. induction 1 as [x|k l r s Hk IHk Hl IHl|k l r Hp Hk IH]; intros zs Hz Habs.
  - simpl. lra.
  - symmetry in Hz. apply map_eq_app in Hz as [zk [zl [-> [Hzk Hzl]]]].
    unfold absolute in Habs. rewrite map_app, total_app in Habs. fold (absolute k) (absolute l) in Habs.
    pose proof (absolute_nonnegative k) as Hak. pose proof (absolute_nonnegative l) as Hal.
    rewrite (IHk zk (eq_sym Hzk)), (IHl zl (eq_sym Hzl)), total_app by lra.
    assert (Hint : forall l' zs', map IZR zs' = l' -> exists z, total l' = IZR z /\ Rabs (IZR z) <= absolute l').
    { intros l' zs' <-. clear. induction zs' as [|z zs' [y [Hy Hle]]]; [exists 0%Z; split; [reflexivity|rewrite Rabs_R0; unfold absolute; simpl; lra]|].
      exists (z + y)%Z. cbn [map total fold_right]. fold (total (map IZR zs')). rewrite Hy, plus_IZR. split; [reflexivity|].
      apply Rle_trans with (1 := Rabs_triang _ _). unfold absolute in *. cbn [map total fold_right].
      fold (total (map Rabs (map IZR zs'))). lra. }
    destruct (Hint k zk Hzk) as [a [Ha Hla]]. destruct (Hint l zl Hzl) as [b [Hb Hlb]].
    rewrite Ha, Hb. apply round_generic; [apply valid_rnd_N|]. rewrite <- plus_IZR.
    apply generic_format_FLT. apply (FLT_spec radix2 emin prec (IZR (a + b)) (Float radix2 (a + b) 0)).
    + unfold F2R. simpl. lra.
    + simpl. apply lt_IZR. rewrite abs_IZR, plus_IZR.
      assert (Hp : (0 <= prec)%Z) by (unfold Prec_gt_0 in prec_gt_0_; lia).
      change (IZR (2 ^ prec)) with (IZR (Zpower radix2 prec)). rewrite IZR_Zpower by exact Hp.
      apply Rle_lt_trans with (1 := Rabs_triang _ _). lra.
    + exact Hemin.
  - assert (Hk' : exists zk, k = map IZR zk).
    { assert (Hall : Forall (fun x => exists z, x = IZR z) k).
      { apply (Permutation_Forall' (fun x => exists z, x = IZR z) l k); [now apply Permutation_sym|].
        rewrite Hz. apply Forall_forall. intros x Hx. apply in_map_iff in Hx as [z [<- _]]. now exists z. }
      clear -Hall. induction Hall as [|x k [z ->] Hall [zk ->]]; [now exists []|]. now exists (z :: zk). }
    destruct Hk' as [zk Hzk]. rewrite <- (total_any_order k l Hp). apply (IH zk Hzk).
    unfold absolute in *. now rewrite (total_permutation _ _ _ Hp).
Qed.
End AnyOrder.
