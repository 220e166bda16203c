(* Sums over ranges and over lists. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model.
Import ListNotations.
Open Scope R_scope.

Lemma sum_ext (n : nat) (f g : nat -> R) :
  (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof.
  induction n as [|n IH]; simpl; intros H; [reflexivity|].
  rewrite IH by (intros; apply H; lia). now rewrite H by lia.
Qed.

Lemma sum_plus (n : nat) (f g : nat -> R) : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n as [|n IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_scale (n : nat) (a : R) (f : nat -> R) : sum n (fun i => a * f i) = a * sum n f.
Proof. induction n as [|n IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_scale_right (n : nat) (a : R) (f : nat -> R) : sum n (fun i => f i * a) = sum n f * a.
Proof. induction n as [|n IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_zero (n : nat) : sum n (fun _ => 0) = 0.
Proof. induction n as [|n IH]; simpl; [reflexivity|]. rewrite IH. lra. Qed.

Lemma sum_shift (n : nat) (f : nat -> R) : sum (S n) f = f O + sum n (fun i => f (S i)).
Proof. induction n as [|n IH]; [simpl; lra|]. change (sum (S (S n)) f) with (sum (S n) f + f (S n)).
  rewrite IH. simpl. lra.
Qed.

Lemma sum_le (n : nat) (f g : nat -> R) :
  (forall i, (i < n)%nat -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n as [|n IH]; simpl; intros H; [lra|].
  apply Rplus_le_compat; [apply IH; intros; apply H; lia | apply H; lia].
Qed.

Lemma total_app (k l : list R) : total (k ++ l) = total k + total l.
Proof. induction k as [|a k IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma total_scale {X : Type} (a : R) (f : X -> R) (l : list X) :
  total (map (fun x => a * f x) l) = a * total (map f l).
Proof. induction l as [|x l IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma total_plus {X : Type} (f g : X -> R) (l : list X) :
  total (map (fun x => f x + g x) l) = total (map f l) + total (map g l).
Proof. induction l as [|x l IH]; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma total_ext {X : Type} (f g : X -> R) (l : list X) :
  (forall x, In x l -> f x = g x) -> total (map f l) = total (map g l).
Proof. intros H. f_equal. now apply map_ext_in. Qed.

Lemma total_le {X : Type} (f g : X -> R) (l : list X) :
  (forall x, In x l -> f x <= g x) -> total (map f l) <= total (map g l).
Proof.
  induction l as [|x l IH]; simpl; intros H; [lra|].
  apply Rplus_le_compat; [apply H; now left | apply IH; intros; apply H; now right].
Qed.

Lemma total_positive {X : Type} (f : X -> R) (l : list X) :
  l <> [] -> (forall x, In x l -> 0 < f x) -> 0 < total (map f l).
Proof.
  destruct l as [|x l]; intros Hne H; [easy|]. clear Hne. simpl.
  assert (0 <= total (map f l)).
  { induction l as [|y l IH]; simpl; [lra|].
    assert (0 < f y) by (apply H; simpl; auto).
    assert (0 <= total (map f l)) by (apply IH; intros z [->|Hz]; apply H; simpl; auto). lra. }
  assert (0 < f x) by (apply H; now left). lra.
Qed.

(* The order of two summations does not matter. *)
Lemma sum_total {X : Type} (n : nat) (f : nat -> X -> R) (l : list X) :
  sum n (fun i => total (map (f i) l)) = total (map (fun x => sum n (fun i => f i x)) l).
Proof.
  induction l as [|x l IH]; simpl; [apply sum_zero|].
  now rewrite <- IH, <- sum_plus.
Qed.

(* A sum over a range is the sum of the list of its terms. *)
Lemma total_seq (n : nat) (f : nat -> R) : total (map f (seq 0 n)) = sum n f.
Proof.
  induction n as [|n IH]; [reflexivity|].
  rewrite seq_S, map_app, total_app, IH. simpl. lra.
Qed.

Lemma nth_map_seq {X : Type} (f : nat -> X) (n i : nat) (y : X) : (i < n)%nat -> nth i (map f (seq 0 n)) y = f i.
Proof.
  intros H. rewrite (nth_indep _ _ (f O)) by now rewrite map_length, seq_length.
  now rewrite map_nth, seq_nth.
Qed.
