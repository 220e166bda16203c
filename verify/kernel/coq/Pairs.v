(* Modular adders as stored in a file, and what "it adds" means: the statement of the theorems about such files. *)

From Coq Require Import Reals List Arith ZArith.
From Weightproof Require Import Model Stored.
Import ListNotations.
Open Scope R_scope.

(* Tokens: the numbers 0, ..., P - 1, and "=", which is P. The input is a b =, and the answer is read after "=". *)
Record attention_head := {
  head_q : matrix;  (* width x key_width *)
  head_k : matrix;  (* width x key_width *)
  head_v : matrix;  (* width x value_width *)
  head_o : matrix   (* value_width x width *)
}.
Record pair_model := {
  keeps_stream : bool;   (* is what a layer reads added to what it writes? *)
  modulus : nat;         (* P, also the number of logits *)
  width : nat;           (* dimension of an embedding *)
  key_width : nat;       (* dimension of queries and keys *)
  value_width : nat;     (* dimension of values *)
  neurons : nat;
  tokens : matrix;       (* (P + 1) x width *)
  positions : matrix;    (* 3 x width *)
  heads : list attention_head;
  mlp_1 : matrix;        (* width x neurons *)
  bias_1 : vector;       (* neurons *)
  mlp_2 : matrix;        (* neurons x width *)
  readout : matrix;      (* width x P *)
  bias_out : vector      (* P *)
}.

(* Token t at position i, and what "=" attends to: a, b and itself. *)
Definition placed (m : pair_model) (t i : nat) : embedded := fun j => at2 (tokens m) t j + at2 (positions m) i j.
Definition own (m : pair_model) : embedded := placed m (modulus m) 2.
Definition attended_to (m : pair_model) (a b : nat) : list embedded := [placed m a 0; placed m b 1; own m].

(* exp ((own @ W_Q) . (k @ W_K)); scores are not divided by a root. *)
Definition pair_score (m : pair_model) (h : attention_head) (k : embedded) : R :=
  sum (key_width m) (fun c => row_product (width m) (own m) (head_q h) c * row_product (width m) k (head_k h) c).
Definition pair_weight (m : pair_model) (h : attention_head) (k : embedded) : R := exp (pair_score m h k).

(* What a head mixes: softmax of the scores, times the values. *)
Definition mixed_by (m : pair_model) (h : attention_head) (a b : nat) : nat -> R :=
  let all := attended_to m a b in
  fun c => total (map (fun k => pair_weight m h k / total (map (pair_weight m h) all) * row_product (width m) k (head_v h) c) all).

(* The stream after attention, the neurons, the stream after them, and the logits. *)
Definition stream (m : pair_model) (a b : nat) : nat -> R :=
  fun j => (if keeps_stream m then own m j else 0)
           + total (map (fun h => row_product (value_width m) (mixed_by m h a b) (head_o h) j) (heads m)).
Definition neuron_value (m : pair_model) (a b : nat) : nat -> R :=
  fun n => Rmax 0 (row_product (width m) (stream m a b) (mlp_1 m) n + at1 (bias_1 m) n).
Definition last_stream (m : pair_model) (a b : nat) : nat -> R :=
  fun j => (if keeps_stream m then stream m a b j else 0) + row_product (neurons m) (neuron_value m a b) (mlp_2 m) j.
Definition pair_logit (m : pair_model) (a b c : nat) : R :=
  row_product (width m) (last_stream m a b) (readout m) c + at1 (bias_out m) c.

Definition head_shapes (m : pair_model) (h : attention_head) : Prop :=
  shape2 (width m) (key_width m) (head_q h) /\ shape2 (width m) (key_width m) (head_k h) /\
  shape2 (width m) (value_width m) (head_v h) /\ shape2 (value_width m) (width m) (head_o h).
Definition pair_shapes (m : pair_model) : Prop :=
  shape2 (S (modulus m)) (width m) (tokens m) /\ shape2 3 (width m) (positions m) /\ Forall (head_shapes m) (heads m) /\
  shape2 (width m) (neurons m) (mlp_1 m) /\ shape1 (neurons m) (bias_1 m) /\ shape2 (neurons m) (width m) (mlp_2 m) /\
  shape2 (width m) (modulus m) (readout m) /\ shape1 (modulus m) (bias_out m) /\ (2 <= modulus m)%nat.

(* For each of the P^2 pairs the logit of (a + b) mod P leads every other one by the margin. *)
Definition adds_by (m : pair_model) (margin : R) : Prop :=
  forall a b, (a < modulus m)%nat -> (b < modulus m)%nat ->
  forall c, (c < modulus m)%nat -> c <> ((a + b) mod modulus m)%nat ->
  pair_logit m a b c + margin <= pair_logit m a b ((a + b) mod modulus m).

(* ---- The file ------------------------------------------------------------------------------------------------------------ *)

Record head_file := {
  q_words : list (list Z); k_words : list (list Z); v_words : list (list Z); o_words : list (list Z)
}.
Record pair_file := {
  pair_format : format; pair_keeps_stream : bool;
  pair_modulus : nat; pair_width : nat; pair_key_width : nat; pair_value_width : nat; pair_neurons : nat;
  tokens_words : list (list Z); positions_words : list (list Z); heads_words : list head_file;
  mlp_1_words : list (list Z); bias_1_words : list Z; mlp_2_words : list (list Z);
  readout_words : list (list Z); bias_out_words : list Z
}.

Definition stored_head (f : format) (h : head_file) : attention_head := {|
  head_q := matrix_of f (q_words h); head_k := matrix_of f (k_words h);
  head_v := matrix_of f (v_words h); head_o := matrix_of f (o_words h)
|}.
Definition stored_pair_model (x : pair_file) : pair_model := {|
  keeps_stream := pair_keeps_stream x;
  modulus := pair_modulus x; width := pair_width x; key_width := pair_key_width x; value_width := pair_value_width x;
  neurons := pair_neurons x;
  tokens := matrix_of (pair_format x) (tokens_words x);
  positions := matrix_of (pair_format x) (positions_words x);
  heads := map (stored_head (pair_format x)) (heads_words x);
  mlp_1 := matrix_of (pair_format x) (mlp_1_words x);
  bias_1 := vector_of (pair_format x) (bias_1_words x);
  mlp_2 := matrix_of (pair_format x) (mlp_2_words x);
  readout := matrix_of (pair_format x) (readout_words x);
  bias_out := vector_of (pair_format x) (bias_out_words x)
|}.

Definition head_words (h : head_file) : list (list Z) := q_words h ++ k_words h ++ v_words h ++ o_words h.
Definition pair_words (x : pair_file) : list Z :=
  concat (tokens_words x ++ positions_words x ++ concat (map head_words (heads_words x)) ++
          mlp_1_words x ++ [bias_1_words x] ++ mlp_2_words x ++ readout_words x ++ [bias_out_words x]).

(* The theorem about a file: every word is a number, the tensors have their shapes, and the model adds all pairs by its
   margin, margin / 2^shift, which is positive. *)
Definition file_adds (x : pair_file) (margin shift : Z) : Prop :=
  Forall (is_number (pair_format x)) (pair_words x) /\
  pair_shapes (stored_pair_model x) /\
  0 < IZR margin / IZR (2 ^ shift) /\
  adds_by (stored_pair_model x) (IZR margin / IZR (2 ^ shift)).
