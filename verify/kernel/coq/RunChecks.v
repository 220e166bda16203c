(* The check that a dot file counts in a format, or a parity file tells parity: exact binary numbers, evaluated by Coq's virtual machine.

   Each layer has a size, which bounds the absolute terms of its sums, and an error: none where all terms are multiples of one
   power of two and the size is at most 2^precision of it, else a share of the size and what the layers before are off by. *)

From Coq Require Import List Arith ZArith Bool.
From Flocq Require Import Core Operations Binary.
From Weightproof Require Import Model Stored Words Check Runs.
Import ListNotations.

(* ---- Exact binary numbers ------------------------------------------------------------------------------------------------- *)

Notation binary := (float radix2).
Definition nothing : binary := Float radix2 0 0.
Definition power (e : Z) : binary := Float radix2 1 e.
Definition is_below (a b : binary) : bool := (0 <=? Fnum (Fminus b a))%Z.
Definition larger (a b : binary) : binary := if is_below a b then b else a.

(* The sum of n numbers, and the largest of them and 0. *)
Fixpoint fsum (n : nat) (g : nat -> binary) : binary :=
  match n with O => nothing | S m => Fplus (fsum m g) (g m) end.
Fixpoint fmost (n : nat) (g : nat -> binary) : binary :=
  match n with O => nothing | S m => larger (fmost m g) (g m) end.
Definition every (n : nat) (test : nat -> bool) : bool := forallb test (seq 0 n).

(* Values of a function, computed once. *)
Definition row (n : nat) (g : nat -> binary) : list binary := map g (seq 0 n).
Definition table (k n : nat) (g : nat -> nat -> binary) : list (list binary) := map (fun t => row n (g t)) (seq 0 k).
Definition get1 (v : list binary) (i : nat) : binary := nth i v nothing.
Definition get2 (M : list (list binary)) (i j : nat) : binary := get1 (nth i M []) j.

(* ---- Stored words --------------------------------------------------------------------------------------------------------- *)

(* Is the number a multiple of 2^e? The largest such e, for all of some numbers; 0 where all are 0. *)
Definition is_multiple (e : Z) (x : binary) : bool :=
  (Fnum x =? 0)%Z || (e <=? Fexp x)%Z || ((0 <=? e - Fexp x)%Z && (Fnum x mod 2 ^ (e - Fexp x) =? 0)%Z).
Definition unit_of_one (x : binary) : Z := (Fexp x + Z.log2 (Z.land (Fnum x) (- Fnum x)))%Z.
Definition unit_of (v : list binary) : Z :=
  match map unit_of_one (filter (fun x => negb (Fnum x =? 0)%Z) v) with [] => 0%Z | e :: l => fold_left Z.min l e end.

(* The same number with an odd numerator, or 0. *)
Definition reduced (y : binary) : binary :=
  let e := unit_of_one y in
  if ((Fexp y <=? e) && (Fnum y mod 2 ^ (e - Fexp y) =? 0))%Z then Float radix2 (Fnum y / 2 ^ (e - Fexp y)) e else y.
Definition number (f : format) (word : Z) : binary :=
  match unpacked f word with F754_finite negative m e => reduced (Float radix2 (cond_Zopp negative (Zpos m)) e) | _ => nothing end.
Definition numbers (f : format) (words : list (list Z)) : list (list binary) := map (map (number f)) words.

Section RunCheck.
Variable f : format. (* of the run; the file's may be another *)
Variable x : file.

Let T := file_T x.
Let L := file_L x.
Let d := file_d x.
Let p := file_p x.

(* A bound below the largest number. *)
Definition most : binary := power (largest_exponent f - 1).
Definition least_normal_exponent : Z := (least_exponent f + precision f - 1)%Z.

(* Is it 0 or a normal number of the format of the run? *)
Definition is_of_format (y : binary) : bool :=
  (Fnum y =? 0)%Z ||
  (let e := unit_of_one y in
   is_multiple e y && (least_exponent f <=? e)%Z && negb (is_below (power (e + precision f)) (Fabs y)) &&
   is_below (power least_normal_exponent) (Fabs y) && is_below (Fabs y) most).

(* ---- Layers --------------------------------------------------------------------------------------------------------------------- *)

(* The error of a sum of n products, of a size, in a layer that is exact or not. *)
Definition share (n : nat) (size : binary) : binary :=
  Fmult (Float radix2 (Z.of_nat (n + 7)) (3 - precision f)) (Fplus size (power 0)).
Definition error (is_exact : bool) (n : nat) (size inherited : binary) : binary :=
  if is_exact then nothing else Fplus inherited (share n size).
Definition stays_within (is_exact : bool) (n : nat) (size : binary) : bool :=
  if is_exact then is_below size most
  else (Z.of_nat (n + 7) * 8 <=? 2 ^ precision f)%Z && is_below (Fplus size (share n size)) most.
(* Are the terms' parts multiples of one power of two, which the format has so many bits for? A term is a multiple of its part. *)
Definition fits (parts : list binary) (size : binary) : bool :=
  let e := unit_of parts in
  (least_normal_exponent <=? e)%Z && is_below size (power (e + precision f)) && forallb (is_multiple e) parts.

(* A layer of k rows of n sums, each of so many products: is it exact, do all sums stay in the format, and their errors. *)
Record layer := { is_exact : bool; all_stay : bool; errors : list (list binary) }.
Definition layer_of (before : bool) (k n terms : nat) (size inherits : nat -> nat -> binary) (parts : nat -> nat -> list binary) : layer :=
  let sizes := table k n size in
  let is_exact := before && every k (fun t => every n (fun c => fits (parts t c) (get2 sizes t c))) in
  {| is_exact := is_exact;
     all_stay := every k (fun t => every n (fun c => stays_within is_exact terms (get2 sizes t c)));
     errors := table k n (fun t c => error is_exact terms (get2 sizes t c) (inherits t c)) |}.

(* What a sum is a multiple of, where its parts are multiples of one power of two; 0 where it is 0. *)
Definition part_of (bound : binary) (parts : list binary) : binary :=
  if is_below bound nothing then nothing else power (unit_of parts).

Let E := numbers (file_format x) (E_words x).
Let W_Q := numbers (file_format x) (W_Q_words x).
Let W_K := numbers (file_format x) (W_K_words x).
Let W_1 := numbers (file_format x) (W_1_words x).
Let W_2 := numbers (file_format x) (W_2_words x).
Let b_1 := map (number (file_format x)) (b_1_words x).
Let b_2 := map (number (file_format x)) (b_2_words x).

(* The product of exact matrices, its sizes, and its layer. *)
Definition times_matrix (W : list (list binary)) : list (list binary) :=
  table T d (fun t c => fsum d (fun j => Fmult (get2 E t j) (get2 W j c))).
Definition projection (W : list (list binary)) : layer :=
  layer_of true T d d
    (fun t c => fsum d (fun j => Fmult (Fabs (get2 E t j)) (Fabs (get2 W j c)))) (fun _ _ => nothing)
    (fun t c => row d (fun j => Fmult (get2 E t j) (get2 W j c))).

(* |g| + error *)
Definition reach (exact errors : list (list binary)) (i j : nat) : binary := Fplus (Fabs (get2 exact i j)) (get2 errors i j).

Definition score_parts (q k : list (list binary)) (t s : nat) : list binary := row d (fun c => Fmult (get2 q t c) (get2 k s c)).
Definition scores_layer (q k : list (list binary)) (Q K : layer) : layer :=
  layer_of (is_exact Q && is_exact K) T T d
    (fun t s => fsum d (fun c => Fmult (reach q (errors Q) t c) (reach k (errors K) s c)))
    (fun t s => fsum d (fun c => Fplus (Fmult (get2 (errors Q) t c) (reach k (errors K) s c))
                                       (Fmult (Fabs (get2 q t c)) (get2 (errors K) s c))))
    (score_parts q k).

(* 1 / sqrt d lies between this and 2^-precision more, and what scores are multiplied by within 2^(8 - precision) of both. *)
Definition inverse_root : binary := Float radix2 (Z.sqrt (4 ^ precision f / Z.of_nat d)) (- precision f).
Definition around_inverse : binary := power (8 - precision f).
(* Is sqrt d, as is its inverse, a number of the format? *)
Definition root_is_exact : bool :=
  (Fnum inverse_root * Fnum inverse_root * Z.of_nat d =? 4 ^ precision f)%Z && is_of_format inverse_root &&
  is_of_format (Fmult (Float radix2 (Z.of_nat d) 0) inverse_root).

(* Scores times that, and the layer of scores that are divided. *)
Definition divided_scores (scores : list (list binary)) : list (list binary) :=
  table T T (fun t s => Fmult (get2 scores t s) inverse_root).
Definition divided_layer (q k scores : list (list binary)) (S : layer) : layer :=
  layer_of (is_exact S && root_is_exact) T T 0
    (fun t s => Fmult (reach scores (errors S) t s) (Fplus inverse_root around_inverse))
    (fun t s => Fplus (Fmult (get2 (errors S) t s) inverse_root) (Fmult (reach scores (errors S) t s) around_inverse))
    (fun t s => map (Fmult inverse_root) (score_parts q k t s)).

(* A bound on L terms, each at most the largest of those of all tokens. *)
Definition slots (g : nat -> binary) : binary := Fmult (Float radix2 (Z.of_nat L) 0) (fmost T g).

Definition mixed_size (E scores : list (list binary)) (S : layer) (t c : nat) : binary :=
  Fplus (slots (fun s => Fmult (reach scores (errors S) t s) (Fabs (get2 E s c)))) (Fabs (get2 E t c)).
Definition mixed_parts (E scores : list (list binary)) (t c : nat) : list binary :=
  get2 E t c :: row T (fun s => Fmult (get2 scores t s) (get2 E s c)).
Definition mixed_layer (scores : list (list binary)) (S : layer) : layer :=
  layer_of (is_exact S) T d L (mixed_size E scores S) (fun t c => slots (fun s => Fmult (get2 (errors S) t s) (Fabs (get2 E s c))))
    (mixed_parts E scores).

(* Bounds of mixed tokens and of neurons in real arithmetic. *)
Definition mixed_bound (scores : list (list binary)) (S : layer) : list (list binary) := table T d (mixed_size E scores S).
Definition neuron_bound (scores : list (list binary)) (S : layer) : list (list binary) :=
  let reads := table T p (fun t n => fsum d (fun c => Fmult (get2 E t c) (get2 W_1 c n))) in
  table T p (fun t n => larger nothing
    (Fplus (Fplus (get2 reads t n) (slots (fun s =>
      Fplus (Fmult (get2 scores t s) (get2 reads s n)) (Fmult (get2 (errors S) t s) (Fabs (get2 reads s n)))))) (get1 b_1 n))).

Definition biased_parts (terms : nat) (parts W : list (list binary)) (b : list binary) (t c : nat) : list binary :=
  get1 b c :: row terms (fun j => Fmult (get2 parts t j) (get2 W j c)).

(* Sums of a matrix W and a bias b: of k rows of `terms` numbers, whose bounds, errors, and parts are known. *)
Definition biased_layer (before : bool) (k n terms : nat) (bounds wrong parts W : list (list binary)) (b : list binary) : layer :=
  layer_of before k n terms
    (fun t c => Fplus (fsum terms (fun j => Fmult (Fplus (get2 bounds t j) (get2 wrong t j)) (Fabs (get2 W j c)))) (Fabs (get1 b c)))
    (fun t c => fsum terms (fun j => Fmult (get2 wrong t j) (Fabs (get2 W j c))))
    (biased_parts terms parts W b).

(* ---- All layers ----------------------------------------------------------------------------------------------------------------- *)

Definition all_of_format : bool :=
  forallb is_of_format (concat E ++ concat W_Q ++ concat W_K ++ concat W_1 ++ b_1 ++ concat W_2 ++ b_2).

(* Are scores divided, and does the root then stay in the format? *)
Definition is_divided : bool := negb (is_parity x).
Definition root_stays : bool := negb is_divided || ((1 <=? d)%nat && is_below (Float radix2 (4 * Z.of_nat d) 0) most).

(* Is every run within the format, and the most that a logit of a token may be off by. *)
Definition logit_errors : bool * list (list binary) :=
  let Q := projection W_Q in
  let K := projection W_K in
  let q := times_matrix W_Q in
  let k := times_matrix W_K in
  let P := scores_layer q k Q K in
  let products := table T T (fun t s => fsum d (fun c => Fmult (get2 q t c) (get2 k s c))) in
  let S := if is_divided then divided_layer q k products P else P in
  let scores := if is_divided then divided_scores products else products in
  let M := mixed_layer scores S in
  let of_mixed := mixed_bound scores S in
  let mixed := table T d (fun t c => part_of (get2 of_mixed t c) (mixed_parts E scores t c)) in
  let N := biased_layer (is_exact M) T p d of_mixed (errors M) mixed W_1 b_1 in
  let of_neurons := neuron_bound scores S in
  let neurons := table T p (fun t n => part_of (get2 of_neurons t n) (biased_parts d mixed W_1 b_1 t n)) in
  let O := biased_layer (is_exact N) T (file_classes x) p of_neurons (errors N) neurons W_2 b_2 in
  (all_stay Q && all_stay K && all_stay P && all_stay S && all_stay M && all_stay N && all_stay O, errors O).

(* What two logits may be off by together, over 2^shift. *)
Definition margin_of_errors (shift : Z) (errors : list (list binary)) : Z :=
  let off := fmost T (fun t => Fmult (Float radix2 2 0) (fmost (file_classes x) (get2 errors t))) in
  if (0 <=? Fexp off + shift)%Z then (Fnum off * 2 ^ (Fexp off + shift))%Z
  else (- (- Fnum off / 2 ^ (- (Fexp off + shift))))%Z.

(* Does every run stay in the format, and does real arithmetic show what the logits may be off by besides? *)
Definition in_format (shift : Z) (shows : Z -> bool) : bool :=
  if all_of_format && root_stays
  then let found := logit_errors in if fst found then shows (margin_of_errors shift (snd found)) else false
  else false.

Definition check_parity_in (s : Z) (how : effort) (margin shift : Z) : bool :=
  (0 <? margin)%Z && in_format shift (fun more => check_parity x s how (margin + more) shift).

Definition is_dot : bool := match file_kind x with Dot => negb (file_softmax x) | _ => false end.
Definition check_in (s : Z) (how : effort) (margins : list Z) (shift : Z) : bool :=
  is_dot && margins_are_positive x margins &&
  in_format shift (fun more => check x s how (map (fun margin => (margin + more)%Z) margins) shift).
End RunCheck.
