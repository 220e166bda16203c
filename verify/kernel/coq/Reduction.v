(* The reduction: a position's preactivation, times a positive number, is a sum over the tokens it looks at. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model Sums.
Import ListNotations.
Open Scope R_scope.

Section Position.
Variable m : model.
Variable x : list nat.
Variable i : nat.

(* BOS as token number T, so that what a position looks at is a list of numbers. *)
Definition index_embedding (s : nat) : embedded :=
  match kind m with
  | Bos => if (s =? T m)%nat then at1 (e_BOS m) else embedding m s
  | _ => embedding m s
  end.

Definition indices : list nat := match kind m with Bos => T m :: x | _ => x end.

Definition own : nat := nth i x O.

Definition raw_weight (s : R) : R := if softmax m then exp s else s.
Definition normaliser : R := if softmax m then total (map exp (scores m x i)) else 1.

(* What is mixed: pairs of a weight, not normalised and times `scale`, and a token. *)
Definition items (scale : R) : list (R * nat) :=
  combine (map (fun s => scale * raw_weight s) (scores m x i)) indices.

(* What neuron n reads from token s. *)
Definition reads (n s : nat) : R := sum (d m) (fun c => index_embedding s c * at2 (W_1 m) c n).

(* A linear form: D (u[own] + beta) + the weighted sum of u over what is mixed. *)
Definition form (D scale : R) (u : nat -> R) (beta : R) : R :=
  D * (u own + beta) + total (map (fun '(a, s) => a * u s) (items scale)).

Lemma context_is_indexed :
  Forall (fun t => t < T m)%nat x -> context m x = map index_embedding indices.
Proof.
  intros Hx. unfold context, indices, index_embedding.
  destruct (kind m); try reflexivity.
  simpl. rewrite Nat.eqb_refl. f_equal.
  apply map_ext_in. intros s Hs. rewrite Forall_forall in Hx. specialize (Hx s Hs).
  destruct (Nat.eqb_spec s (T m)); [lia|reflexivity].
Qed.

Lemma own_embedding :
  (own < T m)%nat -> index_embedding own = embedding m own.
Proof.
  intros H. unfold index_embedding. destruct (kind m); try reflexivity.
  destruct (Nat.eqb_spec own (T m)); [lia|reflexivity].
Qed.

Lemma combine_map_right {X Y Z : Type} (f : Y -> Z) (k : list X) (l : list Y) :
  combine k (map f l) = map (fun '(a, y) => (a, f y)) (combine k l).
Proof. revert l. induction k as [|a k IH]; intros [|y l]; simpl; try reflexivity. now rewrite IH. Qed.

Lemma combine_map_left {X Y Z : Type} (f : X -> Z) (k : list X) (l : list Y) :
  combine (map f k) l = map (fun '(a, y) => (f a, y)) (combine k l).
Proof. revert l. induction k as [|a k IH]; intros [|y l]; simpl; try reflexivity. now rewrite IH. Qed.

(* The mixing weights are the raw weights over the normaliser. *)
Lemma mixing_is_normalised :
  normaliser <> 0 -> mixing m x i = map (fun s => raw_weight s / normaliser) (scores m x i).
Proof.
  unfold mixing, raw_weight, normaliser. destruct (softmax m); intros H; [reflexivity|].
  rewrite <- map_id at 1. apply map_ext. intros s. field.
Qed.

Variable scale : R.
Hypothesis scale_positive : 0 < scale.
Hypothesis normaliser_positive : 0 < normaliser.
Hypothesis x_in_range : Forall (fun t => t < T m)%nat x.
Hypothesis own_in_range : (own < T m)%nat.

Let D := scale * normaliser.

Lemma mixed_token_times_D (c : nat) :
  D * mixed_token m x i c = D * embedding m own c + total (map (fun '(a, s) => a * index_embedding s c) (items scale)).
Proof.
  unfold mixed_token. fold own. rewrite Rmult_plus_distr_l. f_equal.
  rewrite mixing_is_normalised by lra.
  rewrite context_is_indexed by assumption.
  unfold items. rewrite combine_map_right, !combine_map_left, !map_map.
  rewrite <- total_scale. apply total_ext. intros [s k] _. unfold D. field. lra.
Qed.

(* Homogenisation: D times what neuron n reads is a linear form. *)
Lemma preactivation_times_D (n : nat) :
  D * (times m (mixed_token m x i) (W_1 m) n + at1 (b_1 m) n) = form D scale (reads n) (at1 (b_1 m) n).
Proof.
  unfold form, times. rewrite !Rmult_plus_distr_l.
  rewrite <- sum_scale.
  rewrite (sum_ext _ _ (fun j => D * (embedding m own j * at2 (W_1 m) j n)
     + total (map (fun '(a, s) => a * (index_embedding s j * at2 (W_1 m) j n)) (items scale)))).
  - rewrite sum_plus, sum_scale, sum_total.
    unfold reads at 1. rewrite own_embedding by assumption.
    enough (total (map (fun x0 => sum (d m) (fun j => let '(a, s) := x0 in a * (index_embedding s j * at2 (W_1 m) j n)))
                 (items scale)) = total (map (fun '(a, s) => a * reads n s) (items scale))) as -> by lra.
    apply total_ext. intros [a s] _. unfold reads. now rewrite sum_scale.
  - intros j _. rewrite <- Rmult_assoc, mixed_token_times_D, Rmult_plus_distr_r.
    f_equal; [lra|].
    rewrite Rmult_comm, <- total_scale. apply total_ext. intros [a s] _. lra.
Qed.

Lemma hidden_times_D (n : nat) :
  D * hidden m x i n = Rmax 0 (form D scale (reads n) (at1 (b_1 m) n)).
Proof.
  unfold hidden. rewrite <- preactivation_times_D.
  assert (0 < D) by (apply Rmult_lt_0_compat; assumption).
  rewrite <- RmaxRmult by lra. now rewrite Rmult_0_r.
Qed.

(* With softmax, D is the sum of the weights, and so a form is a sum over what is mixed alone. *)
Lemma form_with_softmax (u : nat -> R) (beta : R) :
  softmax m = true -> length (scores m x i) = length indices ->
  form D scale u beta = total (map (fun '(a, s) => a * (u s + (u own + beta))) (items scale)).
Proof.
  intros Hs Hlen. unfold form.
  replace D with (total (map (fun '(a, _) => a) (items scale))).
  - rewrite Rmult_comm, <- total_scale, <- total_plus. apply total_ext. intros [a s] _. lra.
  - unfold D, normaliser, items, raw_weight. rewrite Hs. rewrite <- total_scale.
    revert Hlen. generalize (scores m x i) indices.
    intros k. induction k as [|s k IH]; intros [|y l] H; simpl in *; try easy.
    f_equal. apply IH. lia.
Qed.
End Position.
