(* The check of a modular adder's file: where "=" attends to all three tokens alike, everything is an integer. *)

From Coq Require Import List Arith ZArith Bool.
From Weightproof Require Import Model Stored Forms Words Check Pairs.
Import ListNotations.
Open Scope Z_scope.

(* The weights of each tensor are integers over 2^scale. *)
Record scales := {
  placed_scale : Z; score_scale : Z; value_scale : Z; out_scale : Z; read_scale : Z; write_scale : Z; logit_scale : Z
}.

(* One of equal neighbours in a list. *)
Fixpoint thinned (l : list (list Z)) : list (list Z) :=
  match l with
  | u :: (v :: _) as l' => if list_eq_dec Z.eq_dec u v then thinned l' else u :: thinned l'
  | _ => l
  end.

(* The entry `due` is above each of the other n by at least `need`. *)
Definition is_ahead (n due : nat) (need : Z) (logits : list Z) : bool :=
  let best := zat1 logits due in
  forallb (fun c => (c =? due)%nat || (zat1 logits c + need <=? best)) (seq 0 n).

Section Check.
Variable x : pair_file.
Variable s : scales.
Variables margin shift : Z.  (* the margin over 2^shift *)

Let fmt := pair_format x.
Let P := pair_modulus x.
Let d := pair_width x.

(* What the stream after attention, the neurons, the last stream and the logits are over: three times 2^ these. *)
Definition stream_scale : Z := placed_scale s + value_scale s + out_scale s.
Definition neuron_scale : Z := stream_scale + read_scale s.
Definition last_scale : Z := neuron_scale + write_scale s.
Definition logits_scale : Z := last_scale + logit_scale s.

Definition head_shapes_hold (h : head_file) : bool :=
  has_shape d (pair_key_width x) (q_words h) && has_shape d (pair_key_width x) (k_words h) &&
  has_shape d (pair_value_width x) (v_words h) && has_shape (pair_value_width x) d (o_words h).
Definition pair_shapes_hold : bool :=
  has_shape (S P) d (tokens_words x) && has_shape 3 d (positions_words x) && forallb head_shapes_hold (heads_words x) &&
  has_shape d (pair_neurons x) (mlp_1_words x) && has_length (pair_neurons x) (bias_1_words x) &&
  has_shape (pair_neurons x) d (mlp_2_words x) && has_shape d P (readout_words x) && has_length P (bias_out_words x) &&
  (2 <=? P)%nat.

Definition head_words_fit (h : head_file) : bool :=
  all_fit2 fmt (score_scale s) (q_words h) && all_fit2 fmt (score_scale s) (k_words h) &&
  all_fit2 fmt (value_scale s) (v_words h) && all_fit2 fmt (out_scale s) (o_words h).
Definition pair_words_fit : bool :=
  all_fit2 fmt (placed_scale s) (tokens_words x) && all_fit2 fmt (placed_scale s) (positions_words x) &&
  forallb head_words_fit (heads_words x) && all_fit2 fmt (read_scale s) (mlp_1_words x) &&
  all_fit1 fmt neuron_scale (bias_1_words x) && all_fit2 fmt (write_scale s) (mlp_2_words x) &&
  all_fit2 fmt (logit_scale s) (readout_words x) && all_fit1 fmt logits_scale (bias_out_words x).
Definition scales_hold : bool :=
  forallb (Z.leb 0) [placed_scale s; score_scale s; value_scale s; out_scale s; read_scale s; write_scale s; logit_scale s].

(* The rows of the two embeddings. *)
Definition token_rows : list (list Z) := integers2 fmt (placed_scale s) (tokens_words x).
Definition position_rows : list (list Z) := integers2 fmt (placed_scale s) (positions_words x).

Section Rows.
Variables E X : list (list Z).

Definition placed_row (t i : nat) : list Z := add_scaled 1 (nth t E []) (nth i X []).
Definition own_row : list Z := placed_row P 2.

(* Every first and every second number has the score of "=". *)
Definition head_is_uniform (h : head_file) : bool :=
  let key_columns := columns (pair_key_width x) (integers2 fmt (score_scale s) (k_words h)) in
  let query := map (zdot own_row) (columns (pair_key_width x) (integers2 fmt (score_scale s) (q_words h))) in
  let score k := zdot query (map (zdot k) key_columns) in
  let of_own := score own_row in
  forallb (fun t => (score (placed_row t 0) =? of_own) && (score (placed_row t 1) =? of_own)) (seq 0 P).

(* The sum of the three tokens, and three times the stream after attention, where a head's part is what it writes of
   that sum. *)
Definition rest_of_sum : list Z := add_scaled 1 (nth 0 X []) (add_scaled 1 (nth 1 X []) own_row).
Definition sum_row (rest : list Z) (a b : nat) : list Z := add_scaled 1 (nth a E []) (add_scaled 1 (nth b E []) rest).
Definition head_columns (h : head_file) : list (list Z) * list (list Z) :=
  (columns (pair_value_width x) (integers2 fmt (value_scale s) (v_words h)),
   columns d (integers2 fmt (out_scale s) (o_words h))).
Definition written (cols : list (list (list Z) * list (list Z))) (keys : list Z) : list Z :=
  fold_right (fun '(into, out) => add_scaled 1 (map (zdot (map (zdot keys) into)) out)) [] cols.
Definition own_part : list Z :=
  if pair_keeps_stream x then map (Z.mul (3 * 2 ^ (value_scale s + out_scale s))) own_row else [].

(* Three times the logits of a stream. *)
Definition logits_of (read_columns : list (list Z)) (bias : list Z) (write_columns logit_columns : list (list Z))
    (bias_last : list Z) (u : list Z) : list Z :=
  let fired := map (Z.max 0) (add_scaled 1 (map (zdot u) read_columns) bias) in
  let y := add_scaled (if pair_keeps_stream x then 2 ^ (read_scale s + write_scale s) else 0) u
             (map (zdot fired) write_columns) in
  add_scaled 1 (map (zdot y) logit_columns) bias_last.

(* The least whole number of units of the logits that is three margins. *)
Definition needed : Z := - (- (3 * margin) / 2 ^ (shift - logits_scale)).

(* For each sum all streams, of a <= b as b + a gives the same one. *)
Definition pairs_are_ahead : bool :=
  let cols := map head_columns (heads_words x) in
  let rest := rest_of_sum in
  let own := own_part in
  let logits := logits_of (columns (pair_neurons x) (integers2 fmt (read_scale s) (mlp_1_words x)))
                  (map (Z.mul 3) (integers1 fmt neuron_scale (bias_1_words x)))
                  (columns d (integers2 fmt (write_scale s) (mlp_2_words x)))
                  (columns P (integers2 fmt (logit_scale s) (readout_words x)))
                  (map (Z.mul 3) (integers1 fmt logits_scale (bias_out_words x))) in
  let need := needed in
  forallb (fun z =>
    let first := (z - (P - 1))%nat in
    forallb (fun u => is_ahead P (z mod P) need (logits u))
      (thinned (map (fun a => add_scaled 1 own (written cols (sum_row rest a (z - a)%nat))) (seq first (S (z / 2) - first)))))
    (seq 0 (2 * P - 1)).
End Rows.

Definition check_pairs : bool :=
  pair_shapes_hold && scales_hold && pair_words_fit && (0 <? margin) && (logits_scale <=? shift) &&
  let E := token_rows in let X := position_rows in
  forallb (head_is_uniform E X) (heads_words x) && pairs_are_ahead E X.
End Check.
