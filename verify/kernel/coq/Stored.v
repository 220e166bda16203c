(* The stored file of the theorems: the words of its tensors, the numbers that these words are, and the claim. *)

From Coq Require Import Reals List ZArith.
From Flocq Require Import Core Binary Bits.
From Weightproof Require Import Model.
Import ListNotations.

(* ---- From a word to its number: IEEE 754 as Flocq defines it --------------------------------------------- *)

Inductive format := float64 | float32 | float16 | bfloat16.

(* The number of bits of the stored significand, and of the exponent. *)
Definition significand_bits (f : format) : Z :=
  match f with float64 => 52 | float32 => 23 | float16 => 10 | bfloat16 => 7 end.
Definition exponent_bits (f : format) : Z :=
  match f with float64 => 11 | float32 => 8 | float16 => 5 | bfloat16 => 8 end.

Definition precision (f : format) : Z := significand_bits f + 1.
Definition largest_exponent (f : format) : Z := Z.pow 2 (exponent_bits f - 1).

Lemma significand_bits_positive (f : format) : (0 < significand_bits f)%Z. Proof. now destruct f. Qed.
Lemma exponent_bits_positive (f : format) : (0 < exponent_bits f)%Z. Proof. now destruct f. Qed.
Lemma exponents_suffice (f : format) : (precision f < largest_exponent f)%Z. Proof. now destruct f. Qed.

(* The floating-point datum of a word of the file (for float32 this is Flocq's b32_of_bits), and its real value. *)
Definition datum (f : format) (word : Z) : binary_float (precision f) (largest_exponent f) :=
  binary_float_of_bits (significand_bits f) (exponent_bits f)
    (significand_bits_positive f) (exponent_bits_positive f) (exponents_suffice f) word.
Definition value (f : format) (word : Z) : R := B2R _ _ (datum f word).

(* A word of the format's width that is neither NaN nor an infinity. *)
Definition is_number (f : format) (word : Z) : Prop :=
  (0 <= word < Z.pow 2 (significand_bits f + exponent_bits f + 1))%Z /\ is_finite _ _ (datum f word) = true.

(* ---- The file ----------------------------------------------------------------------------------------------- *)

Record file := {
  file_format : format;
  file_kind : mixing_kind; file_softmax : bool;
  file_T : nat; file_L : nat; file_d : nat; file_p : nat; file_classes : nat; file_first_count : nat;
  E_words : list (list Z); e_BOS_words : list Z; A_words : list (list Z);
  W_Q_words : list (list Z); W_K_words : list (list Z);
  W_1_words : list (list Z); b_1_words : list Z; W_2_words : list (list Z); b_2_words : list Z
}.

Definition vector_of (f : format) (words : list Z) : vector := map (value f) words.
Definition matrix_of (f : format) (words : list (list Z)) : matrix := map (vector_of f) words.

(* The model whose weights are the numbers in the file. *)
Definition stored_model (x : file) : model := {|
  kind := file_kind x; softmax := file_softmax x;
  T := file_T x; L := file_L x; d := file_d x; p := file_p x;
  classes := file_classes x; first_count := file_first_count x;
  E := matrix_of (file_format x) (E_words x);
  e_BOS := vector_of (file_format x) (e_BOS_words x);
  A := matrix_of (file_format x) (A_words x);
  W_Q := matrix_of (file_format x) (W_Q_words x);
  W_K := matrix_of (file_format x) (W_K_words x);
  W_1 := matrix_of (file_format x) (W_1_words x);
  b_1 := vector_of (file_format x) (b_1_words x);
  W_2 := matrix_of (file_format x) (W_2_words x);
  b_2 := vector_of (file_format x) (b_2_words x)
|}.

Definition words (x : file) : list Z :=
  concat (E_words x ++ [e_BOS_words x] ++ A_words x ++ W_Q_words x ++ W_K_words x ++
          W_1_words x ++ [b_1_words x] ++ W_2_words x ++ [b_2_words x]).

(* margins[k - 1] / 2^shift, the margin for the right count k. *)
Definition margin_of (margins : list Z) (shift : Z) (k : nat) : R :=
  (IZR (nth (k - 1) margins 0%Z) / IZR (2 ^ shift))%R.

(* The theorem about a file: every word is a number, the tensors have the shapes of the model, and the model
   counts, on every sequence and at every position, by these margins, which are positive. *)
Definition file_counts (x : file) (margins : list Z) (shift : Z) : Prop :=
  Forall (is_number (file_format x)) (words x) /\
  well_shaped (stored_model x) /\
  counts (stored_model x) /\
  counts_by (stored_model x) (margin_of margins shift) /\
  (forall k, (1 <= k <= file_L x)%nat -> (0 < margin_of margins shift k)%R).

(* The same of a parity model, by one positive margin. *)
Definition file_tells_parity (x : file) (margin shift : Z) : Prop :=
  file_kind x = Parity /\ file_softmax x = false /\
  Forall (is_number (file_format x)) (words x) /\
  well_shaped (stored_model x) /\
  (0 < IZR margin / IZR (2 ^ shift))%R /\
  tells_parity_by (stored_model x) (fun _ => IZR margin / IZR (2 ^ shift))%R.
