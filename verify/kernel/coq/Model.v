(* The model of the theorems: a one-layer transformer block over the real numbers, and what "it counts" means.

   Everything that a reader has to believe about a theorem "this file counts" is on this page and in Stored.v:
   the other files are proofs, which Coq's kernel checks. docs/kernel.md reads this page line by line. *)

From Coq Require Import Reals List Arith.
Import ListNotations.
Open Scope R_scope.

(* ---- Numbers, vectors, matrices ------------------------------------------------------------------------- *)

(* A stored tensor with one axis, and one with two: a list of rows. *)
Definition vector := list R.
Definition matrix := list vector.

(* v[i] and M[i, j], counted from 0. Outside the tensor they are 0, so sizes are stated: see well_shaped. *)
Definition at1 (v : vector) (i : nat) : R := nth i v 0.
Definition at2 (M : matrix) (i j : nat) : R := at1 (nth i M []) j.

(* f 0 + f 1 + ... + f (n - 1). *)
Fixpoint sum (n : nat) (f : nat -> R) : R :=
  match n with
  | O => 0
  | S m => sum m f + f m
  end.

(* The sum of a list. *)
Definition total (l : list R) : R := fold_right Rplus 0 l.

(* v @ W, for a vector with n entries. *)
Definition row_product (n : nat) (v : nat -> R) (W : matrix) : nat -> R := fun c => sum n (fun j => v j * at2 W j c).

(* ---- The module ------------------------------------------------------------------------------------------ *)

(* Lin mixes by a matrix A of its own; Dot by the scores of queries against keys; Bos does so with one more token,
   BOS, in front of the sequence. Parity is Dot with scores that are not divided, and has the classes even and odd. *)
Inductive mixing_kind := Lin | Dot | Bos | Parity.

(* The sizes and the stored tensors. Class c stands for the count c + first_count; of Parity, 0 is even and 1 odd. *)
Record model := {
  kind : mixing_kind;
  softmax : bool;        (* is a softmax applied to the scores? *)
  T : nat;               (* tokens are 0, ..., T - 1 *)
  L : nat;               (* length of a sequence *)
  d : nat;               (* dimension of an embedding *)
  p : nat;               (* number of hidden neurons *)
  classes : nat;         (* number of logits *)
  first_count : nat;     (* the count that class 0 stands for *)
  E : matrix;            (* T x d *)
  e_BOS : vector;        (* d, for Bos *)
  A : matrix;            (* L x L, for Lin *)
  W_Q : matrix;          (* d x d, for all but Lin *)
  W_K : matrix;          (* d x d, for all but Lin *)
  W_1 : matrix;          (* d x p *)
  b_1 : vector;          (* p *)
  W_2 : matrix;          (* p x classes *)
  b_2 : vector           (* classes *)
}.

(* ---- The forward pass: the logits of position i of the sequence x ------------------------------------------ *)

(* An embedded token: its entries 0, ..., d - 1. *)
Definition embedded := nat -> R.

(* E[t]. *)
Definition embedding (m : model) (t : nat) : embedded := at2 (E m) t.

(* What position i may look at: [e_BOS,] E[x[0]], ..., E[x[L - 1]]. *)
Definition context (m : model) (x : list nat) : list embedded :=
  match kind m with
  | Bos => at1 (e_BOS m) :: map (embedding m) x
  | _ => map (embedding m) x
  end.

(* v @ W, for a vector with d entries. *)
Definition times (m : model) (v : embedded) (W : matrix) : nat -> R :=
  fun c => sum (d m) (fun j => v j * at2 W j c).

(* What scores are divided by. *)
Definition root (m : model) : R := match kind m with Parity => 1 | _ => sqrt (INR (d m)) end.

(* (q @ W_Q) . (k @ W_K) / sqrt d. *)
Definition score (m : model) (q k : embedded) : R :=
  sum (d m) (fun c => times m q (W_Q m) c * times m k (W_K m) c) / root m.

(* Row i of the scores. *)
Definition scores (m : model) (x : list nat) (i : nat) : list R :=
  match kind m with
  | Lin => map (at2 (A m) i) (seq 0 (L m))
  | _ => map (score m (embedding m (nth i x O))) (context m x)
  end.

(* Row i of the token mixing matrix: the scores, or the softmax of them. *)
Definition mixing (m : model) (x : list nat) (i : nat) : list R :=
  if softmax m
  then map (fun s => exp s / total (map exp (scores m x i))) (scores m x i)
  else scores m x i.

(* The mixed token x'[i] = x[i] + sum over j of mixing[i, j] context[j]. *)
Definition mixed_token (m : model) (x : list nat) (i : nat) : embedded :=
  fun c => embedding m (nth i x O) c
           + total (map (fun '(a, v) => a * v c) (combine (mixing m x i) (context m x))).

(* relu(x'[i] @ W_1 + b_1)[n]. *)
Definition hidden (m : model) (x : list nat) (i n : nat) : R :=
  Rmax 0 (times m (mixed_token m x i) (W_1 m) n + at1 (b_1 m) n).

(* (hidden @ W_2 + b_2)[c]. *)
Definition logit (m : model) (x : list nat) (i c : nat) : R :=
  sum (p m) (fun n => hidden m x i n * at2 (W_2 m) n c) + at1 (b_2 m) c.

(* ---- What is claimed ---------------------------------------------------------------------------------------- *)

(* A list of n numbers, and a list of n rows of k numbers each. *)
Definition shape1 {X : Type} (n : nat) (v : list X) : Prop := length v = n.
Definition shape2 {X : Type} (n k : nat) (M : list (list X)) : Prop := length M = n /\ Forall (shape1 k) M.

(* All tensors that the model uses have the shapes stated above, and there is a class for each count 1, ..., L. *)
Definition well_shaped (m : model) : Prop :=
  shape2 (T m) (d m) (E m) /\
  match kind m with
  | Lin => shape2 (L m) (L m) (A m)
  | Dot | Parity => shape2 (d m) (d m) (W_Q m) /\ shape2 (d m) (d m) (W_K m)
  | Bos => shape2 (d m) (d m) (W_Q m) /\ shape2 (d m) (d m) (W_K m) /\ shape1 (d m) (e_BOS m)
  end /\
  shape2 (d m) (p m) (W_1 m) /\ shape1 (p m) (b_1 m) /\
  shape2 (p m) (classes m) (W_2 m) /\ shape1 (classes m) (b_2 m) /\
  match kind m with
  | Parity => classes m = 2
  | _ => first_count m <= 1 /\ L m < classes m + first_count m
  end%nat /\ (1 <= d m)%nat.

(* x is one of the T^L sequences. *)
Definition is_sequence (m : model) (x : list nat) : Prop :=
  length x = L m /\ Forall (fun t => t < T m)%nat x.

(* How often the token of position i occurs in x. *)
Definition count (x : list nat) (i : nat) : nat := count_occ Nat.eq_dec x (nth i x O).

(* On every sequence, at every position, the logit of the right class is the largest, by at least the margin that is
   stated for the right count. *)
Definition counts_by (m : model) (margin : nat -> R) : Prop :=
  forall x, is_sequence m x ->
  forall i, (i < L m)%nat ->
  forall c, (c < classes m)%nat -> (c + first_count m <> count x i)%nat ->
  logit m x i c + margin (count x i) <= logit m x i (count x i - first_count m).

(* On every sequence, at every position, the logit of the right class is strictly the largest. *)
Definition counts (m : model) : Prop :=
  forall x, is_sequence m x ->
  forall i, (i < L m)%nat ->
  forall c, (c < classes m)%nat -> (c + first_count m <> count x i)%nat ->
  logit m x i c < logit m x i (count x i - first_count m).

(* The same for a model that tells even counts (class 0) from odd ones (class 1). *)
Definition tells_parity_by (m : model) (margin : nat -> R) : Prop :=
  forall x, is_sequence m x ->
  forall i, (i < L m)%nat ->
  logit m x i (1 - count x i mod 2) + margin (count x i) <= logit m x i (count x i mod 2).
