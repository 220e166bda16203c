(* What a machine may compute for a stored dot or parity model in a format, and the theorems about a file in that format.

   With Model.v and Stored.v this is all that a reader has to believe of a theorem "this file counts in float32, in any order",
   or "tells parity": every operation rounds or may keep more bits, sums are taken in any order and grouping, products are fused with
   additions or not, and what is stored or read again may be rounded again. docs/kernel.md reads this page line by line. *)

From Coq Require Import Reals List Arith ZArith.
From Flocq Require Import Core.
From Weightproof Require Import Model Stored Evaluations.
Import ListNotations.
Open Scope R_scope.

(* ---- One operation ---------------------------------------------------------------------------------------------------------- *)

(* The numbers of a format are multiples of 2^least_exponent; the largest has all bits set. *)
Definition least_exponent (f : format) : Z := (3 - largest_exponent f - precision f)%Z.
Definition largest_number (f : format) : R :=
  bpow radix2 (largest_exponent f) - bpow radix2 (largest_exponent f - precision f).

(* An operation whose exact value is v may give r: beyond the largest number whatever there is, for an infinity or NaN; else v
   rounded to the format or to a wider one, in any direction, or 0 for a subnormal result. *)
Definition operates (f : format) (v r : R) : Prop :=
  largest_number f < Rabs v \/ computes (least_exponent f) (precision f) v r.

Section Runs.
Variable result : R -> R -> Prop.

(* A result r of v that is stored, kept, or read as a factor: up to three more roundings. *)
Definition again (v r : R) : Prop := r = v \/ result v r.
Definition reads (v r : R) : Prop := exists a b, again v a /\ again a b /\ again b r.

(* ---- Matrix products: dots is a sum of products in any order ------------------------------------------------------------ *)

(* f 0 * g 0 + ... + f (n - 1) * g (n - 1), each number read once. *)
Definition product (n : nat) (f g : nat -> R) (r : R) : Prop :=
  exists f' g', (forall j, (j < n)%nat -> reads (f j) (f' j) /\ reads (g j) (g' j)) /\ dots result (products n f' g') r.

(* The same and b, which is one more term, or is added to what is stored of the others. *)
Definition product_plus (n : nat) (f g : nat -> R) (b r : R) : Prop :=
  exists f' g' b', (forall j, (j < n)%nat -> reads (f j) (f' j) /\ reads (g j) (g' j)) /\ reads b b' /\
  (dots result ((1, b') :: products n f' g') r \/
   exists y z, dots result (products n f' g') y /\ reads y z /\ result (z + b') r).

(* ---- A run: what a dot or parity model may compute at position i of x -------------------------------------------------- *)

(* v / sqrt d, divided by a rounded root or multiplied by its rounded reciprocal; of Parity v itself. *)
Definition divided (m : model) (v r : R) : Prop :=
  match kind m with
  | Parity => r = v
  | _ => exists y z root, reads v y /\ result (sqrt (INR (d m))) z /\ reads z root /\
      (result (y / root) r \/ exists w inverse, result (/ root) w /\ reads w inverse /\ result (y * inverse) r)
  end.

Definition run (m : model) (x : list nat) (i : nat)
    (query : nat -> R) (key : nat -> nat -> R) (score mixed sums logits : nat -> R) : Prop :=
  let embedded j := embedding m (nth j x O) in
  (forall c, (c < d m)%nat -> product (d m) (embedded i) (fun j => at2 (W_Q m) j c) (query c)) /\
  (forall s c, (s < L m)%nat -> (c < d m)%nat -> product (d m) (embedded s) (fun j => at2 (W_K m) j c) (key s c)) /\
  (forall s, (s < L m)%nat -> exists v, product (d m) query (key s) v /\ divided m v (score s)) /\
  (forall c, (c < d m)%nat -> product_plus (L m) score (fun s => embedded s c) (embedded i c) (mixed c)) /\
  (forall n, (n < p m)%nat -> product_plus (d m) mixed (fun c => at2 (W_1 m) c n) (at1 (b_1 m) n) (sums n)) /\
  (forall c, (c < classes m)%nat ->
     product_plus (p m) (fun n => Rmax 0 (sums n)) (fun n => at2 (W_2 m) n c) (at1 (b_2 m) c) (logits c)).
End Runs.

(* ---- What is claimed ------------------------------------------------------------------------------------------------------------ *)

(* No weight is beyond the largest number of the format: what is stored of it is no infinity, whose product with 0 is NaN. *)
Definition weights_stay (f : format) (m : model) : Prop := forall i j,
  Forall (fun M => Rabs (at2 M i j) <= largest_number f) [E m; W_Q m; W_K m; W_1 m; [b_1 m]; W_2 m; [b_2 m]].

(* Nothing that is computed is beyond the largest number of the format. *)
Definition stays (f : format) (m : model)
    (query : nat -> R) (key : nat -> nat -> R) (score mixed sums logits : nat -> R) : Prop :=
  (forall c, (c < d m)%nat -> Rabs (query c) <= largest_number f) /\
  (forall s c, (s < L m)%nat -> (c < d m)%nat -> Rabs (key s c) <= largest_number f) /\
  (forall s, (s < L m)%nat -> Rabs (score s) <= largest_number f) /\
  (forall c, (c < d m)%nat -> Rabs (mixed c) <= largest_number f) /\
  (forall n, (n < p m)%nat -> Rabs (sums n) <= largest_number f) /\
  (forall c, (c < classes m)%nat -> Rabs (logits c) <= largest_number f).

(* On every sequence, at every position, whatever a run computes: nothing overflows, and the logit of the right class, as it is
   stored, leads the other by the margin. *)
Definition tells_parity_in_any_order (f : format) (m : model) (margin : R) : Prop :=
  forall x, is_sequence m x -> forall i, (i < L m)%nat ->
  forall query key score mixed sums logits, run (operates f) m x i query key score mixed sums logits ->
  stays f m query key score mixed sums logits /\
  forall right other, reads (operates f) (logits (count x i mod 2)%nat) right ->
  reads (operates f) (logits (1 - count x i mod 2)%nat) other -> other + margin <= right.

(* The same of a count: the logit of the right class leads every other one by the margin for that count. *)
Definition counts_in_format (f : format) (m : model) (margin : nat -> R) : Prop :=
  forall x, is_sequence m x -> forall i, (i < L m)%nat ->
  forall query key score mixed sums logits, run (operates f) m x i query key score mixed sums logits ->
  stays f m query key score mixed sums logits /\
  forall c, (c < classes m)%nat -> (c + first_count m <> count x i)%nat ->
  forall right other, reads (operates f) (logits (count x i - first_count m)%nat) right -> reads (operates f) (logits c) other ->
  other + margin (count x i) <= right.

(* The theorem about a dot file in a format, which need not be the one it is stored in. *)
Definition file_counts_in (f : format) (x : file) (margins : list Z) (shift : Z) : Prop :=
  file_kind x = Dot /\ file_softmax x = false /\
  Forall (is_number (file_format x)) (words x) /\
  well_shaped (stored_model x) /\
  (forall k, (1 <= k <= file_L x)%nat -> (0 < margin_of margins shift k)%R) /\
  weights_stay f (stored_model x) /\
  counts_in_format f (stored_model x) (margin_of margins shift).

(* The theorem about a parity file in a format, which need not be the one it is stored in. *)
Definition file_tells_parity_in (f : format) (x : file) (margin shift : Z) : Prop :=
  file_kind x = Parity /\ file_softmax x = false /\
  Forall (is_number (file_format x)) (words x) /\
  well_shaped (stored_model x) /\
  (0 < IZR margin / IZR (2 ^ shift))%R /\
  weights_stay f (stored_model x) /\
  tells_parity_in_any_order f (stored_model x) (IZR margin / IZR (2 ^ shift)).
