(* Count01 models as stored in a file, and what "it answers" means: the statement of the theorems about such files. *)

From Coq Require Import Reals List Arith ZArith.
From Weightproof Require Import Model Stored.
Import ListNotations.
Open Scope R_scope.

(* Tokens: BOS 0, the digits 0, 1 and 2 as 1, 2 and 3, "=" 4, the answers "4" and "5" as 5 and 6, EOS 7. *)
Record prompt_model := {
  has_skip : bool;  (* is the token's own embedding added to what it attends to? *)
  dim : nat;        (* dimension of an embedding *)
  head : nat;       (* dimension of the head *)
  answers : nat;    (* number of logits *)
  emb : matrix;     (* 8 x dim *)
  w_q : matrix;     (* dim x head *)
  w_k : matrix;     (* dim x head *)
  w_v : matrix;     (* dim x head *)
  w_o : matrix;     (* head x dim *)
  w_out : matrix;   (* dim x answers *)
  b_out : vector    (* answers *)
}.

(* (E[q] @ W_Q) . (E[t] @ W_K). *)
Definition key_score (m : prompt_model) (q t : nat) : R :=
  sum (head m) (fun c => row_product (dim m) (at2 (emb m) q) (w_q m) c * row_product (dim m) (at2 (emb m) t) (w_k m) c).

(* The last position of the string x attends to all of it: softmax of the scores, their sum, and what is mixed. *)
Definition key_weight (m : prompt_model) (x : list nat) (t : nat) : R := exp (key_score m (last x O) t).
Definition weights_sum (m : prompt_model) (x : list nat) : R := total (map (key_weight m x) x).
Definition mixed_value (m : prompt_model) (x : list nat) : nat -> R :=
  fun c => total (map (fun t => key_weight m x t / weights_sum m x * row_product (dim m) (at2 (emb m) t) (w_v m) c) x).

(* The stream and the logits after the last position. *)
Definition stream_after (m : prompt_model) (x : list nat) : nat -> R :=
  fun j => (if has_skip m then at2 (emb m) (last x O) j else 0) + row_product (head m) (mixed_value m x) (w_o m) j.
Definition logit_after (m : prompt_model) (x : list nat) (c : nat) : R :=
  row_product (dim m) (stream_after m x) (w_out m) c + at1 (b_out m) c.

Definition prompt_shapes (m : prompt_model) : Prop :=
  shape2 8 (dim m) (emb m) /\ shape2 (dim m) (head m) (w_q m) /\ shape2 (dim m) (head m) (w_k m) /\
  shape2 (dim m) (head m) (w_v m) /\ shape2 (head m) (dim m) (w_o m) /\
  shape2 (dim m) (answers m) (w_out m) /\ shape1 (answers m) (b_out m) /\ (8 <= answers m)%nat.

(* ---- What is claimed -------------------------------------------------------------------------------------------------- *)

(* Which strings: at most so many zeros, at most so many ones, and at most so many twos; None where there is no limit.
   How much is due: every lead is at least the margin, or the margin over the sum of the weights. *)
Record prompt_claim := {
  most_digits : option Z; most_noise : option Z;
  is_thesis : bool;  (* "4" where n0 >= n1, else "5"; otherwise "4" where n1 > n0, else "5" *)
  is_over_sum : bool; due_margin : R
}.

Definition within (most : option Z) (n : nat) : Prop := match most with Some b => (Z.of_nat n <= b)%Z | None => True end.

Definition how_many (x : list nat) (t : nat) : nat := count_occ Nat.eq_dec x t.
Definition due_answer (q : prompt_claim) (x : list nat) : nat :=
  if Bool.eqb (how_many x 1 <? how_many x 2)%nat (is_thesis q) then 6 else 5.

(* After the string x the logit of `due` leads every other one. *)
Definition leads (m : prompt_model) (q : prompt_claim) (x : list nat) (due : nat) : Prop :=
  forall c, (c < answers m)%nat -> c <> due ->
  logit_after m x c + due_margin q / (if is_over_sum q then weights_sum m x else 1) <= logit_after m x due.

(* Every string of digits within the limits is answered rightly after "=", and EOS follows "4" and "5". *)
Definition answers_prompts (m : prompt_model) (q : prompt_claim) : Prop :=
  forall x, Forall (fun t => t = 1 \/ t = 2 \/ t = 3)%nat x ->
  within (most_digits q) (how_many x 1) -> within (most_digits q) (how_many x 2) -> within (most_noise q) (how_many x 3) ->
  leads m q (0%nat :: x ++ [4%nat]) (due_answer q x) /\
  leads m q (0%nat :: x ++ [4; 5]%nat) 7 /\
  leads m q (0%nat :: x ++ [4; 6]%nat) 7.

(* ---- The file ------------------------------------------------------------------------------------------------------------ *)

Record prompt_file := {
  words_format : format; words_skip : bool; words_dim : nat; words_head : nat; words_answers : nat;
  emb_words : list (list Z); w_q_words : list (list Z); w_k_words : list (list Z); w_v_words : list (list Z);
  w_o_words : list (list Z); w_out_words : list (list Z); b_out_words : list Z
}.

Definition stored_prompt_model (x : prompt_file) : prompt_model := {|
  has_skip := words_skip x; dim := words_dim x; head := words_head x; answers := words_answers x;
  emb := matrix_of (words_format x) (emb_words x);
  w_q := matrix_of (words_format x) (w_q_words x);
  w_k := matrix_of (words_format x) (w_k_words x);
  w_v := matrix_of (words_format x) (w_v_words x);
  w_o := matrix_of (words_format x) (w_o_words x);
  w_out := matrix_of (words_format x) (w_out_words x);
  b_out := vector_of (words_format x) (b_out_words x)
|}.

Definition prompt_words (x : prompt_file) : list Z :=
  concat (emb_words x ++ w_q_words x ++ w_k_words x ++ w_v_words x ++ w_o_words x ++ w_out_words x ++ [b_out_words x]).

(* The theorem about a file: every word is a number, the tensors have their shapes, and the model answers all prompts of
   the claim by its margin, margin / 2^shift, which is positive. *)
Definition stated (digits noise : option Z) (thesis over_sum : bool) (margin shift : Z) : prompt_claim := {|
  most_digits := digits; most_noise := noise; is_thesis := thesis; is_over_sum := over_sum;
  due_margin := IZR margin / IZR (2 ^ shift)
|}.
Definition file_answers (x : prompt_file) (digits noise : option Z) (thesis over_sum : bool) (margin shift : Z) : Prop :=
  Forall (is_number (words_format x)) (prompt_words x) /\
  prompt_shapes (stored_prompt_model x) /\
  0 < IZR margin / IZR (2 ^ shift) /\
  answers_prompts (stored_prompt_model x) (stated digits noise thesis over_sum margin shift).
