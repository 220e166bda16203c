(* The check that Coq's virtual machine runs on a file: integers only. Correct.v proves what it shows. *)

From Coq Require Import List Arith ZArith Bool.
From Interval Require Import Interval.Float_full.
From Weightproof Require Import Model Stored Forms Regions Queries Words Exponentials.
Import ListNotations.

(* How to check: nothing that a theorem says depends on these numbers, only whether the check succeeds. *)
Record effort := {
  weight_bits : Z;          (* mixing weights are brackets of integers over 2^weight_bits *)
  exp_precision : positive; (* bits of the interval arithmetic of exponentials *)
  line_bits : Z;            (* bits of the slopes of lines below undecided neurons *)
  most_undecided : nat;     (* undecided neurons whose cases are all looked at *)
  splits : nat;             (* how often a region is split *)
  clusters : list (list token_set) (* for each own token the sets of tokens to split by, in this order *)
}.

(* ---- Integer matrices ------------------------------------------------------------------------------------------------ *)

Fixpoint zdot (u v : list Z) : Z :=
  match u, v with
  | a :: u', b :: v' => (a * b + zdot u' v')%Z
  | _, _ => 0%Z
  end.

Definition column (n : nat) (W : list (list Z)) : list Z := map (fun row => zat1 row n) W.
Definition columns (k : nat) (W : list (list Z)) : list (list Z) := map (fun n => column n W) (seq 0 k).

(* All products of a row and a column. *)
Definition products (rows cols : list (list Z)) : list (list Z) := map (fun row => map (zdot row) cols) rows.

(* ---- Shapes ------------------------------------------------------------------------------------------------------------ *)

Definition has_length {X : Type} (n : nat) (l : list X) : bool := (length l =? n)%nat.
Definition has_shape {X : Type} (n k : nat) (M : list (list X)) : bool := has_length n M && forallb (has_length k) M.

Section Check.
Variable x : file.
Variable s : Z.  (* every weight is an integer over 2^s *)
Variable how : effort.

Let fmt := file_format x.
Let d := file_d x.
Let p := file_p x.
Let is_bos := match file_kind x with Bos => true | _ => false end.
Let is_lin := match file_kind x with Lin => true | _ => false end.

Definition shapes_hold : bool :=
  has_shape (file_T x) d (E_words x) &&
  match file_kind x with
  | Lin => has_shape (file_L x) (file_L x) (A_words x)
  | Dot | Parity => has_shape d d (W_Q_words x) && has_shape d d (W_K_words x)
  | Bos => has_shape d d (W_Q_words x) && has_shape d d (W_K_words x) && has_length d (e_BOS_words x)
  end &&
  has_shape d p (W_1_words x) && has_length p (b_1_words x) &&
  has_shape p (file_classes x) (W_2_words x) && has_length (file_classes x) (b_2_words x) &&
  match file_kind x with
  | Parity => (file_classes x =? 2)%nat
  | _ => (file_first_count x <=? 1)%nat && (file_L x <? file_classes x + file_first_count x)%nat
  end && (1 <=? d)%nat.

Definition words_fit : bool :=
  (0 <=? s)%Z && all_fit2 fmt s (E_words x) && all_fit1 fmt s (e_BOS_words x) && all_fit2 fmt s (A_words x) &&
  all_fit2 fmt s (W_Q_words x) && all_fit2 fmt s (W_K_words x) && all_fit2 fmt s (W_1_words x) &&
  all_fit1 fmt s (b_1_words x) && all_fit2 fmt s (W_2_words x) && all_fit1 fmt s (b_2_words x).

(* ---- Tables: the embedded tokens (BOS last), the forms that neurons read, and the scores ------------------------------------ *)

Definition tokens_table : list (list Z) :=
  integers2 fmt s (E_words x) ++ (if is_bos then [integers1 fmt s (e_BOS_words x)] else []).

(* Over 4^s. *)
Definition neuron_forms : list zform :=
  let cols := columns p (integers2 fmt s (W_1_words x)) in
  let biases := integers1 fmt s (b_1_words x) in
  map (fun n => (map (fun row => zdot row (nth n cols [])) tokens_table, zat1 biases n * 2 ^ s)%Z) (seq 0 p).

(* D itself, over 4^s: a neuron that is always on, and writes b_2. *)
Definition D_form : zform := ([], (2 ^ s * 2 ^ s)%Z).

(* Each form and its negative, whose least values are a range. *)
Definition forms : list (zform * zform) := map (fun f => (f, negate f)) (neuron_forms ++ [D_form]).

(* Scores of tokens times sqrt d, over 16^s. *)
Definition scores_table : list (list Z) :=
  products (products tokens_table (columns d (integers2 fmt s (W_Q_words x))))
           (products tokens_table (columns d (integers2 fmt s (W_K_words x)))).

(* ---- Mixing weights ------------------------------------------------------------------------------------------------------- *)

Definition largest (l : list Z) : Z := match l with [] => 0%Z | a :: l' => fold_left Z.max l' a end.

(* The row of scores as weights: exact without softmax; with it exponentials, divided by the largest. *)
Definition weights_of (div : I.type) (row : list Z) : list bracket :=
  if file_softmax x
  then let top := largest row in
       map (fun n => exp_bracket (F.PtoP (exp_precision how)) (weight_bits how) div (n - top)) row
  else map (fun n => (n * 2 ^ weight_bits how, n * 2 ^ weight_bits how)%Z) row.

(* Scores are integers over 16^s sqrt d, entries of A over 2^s. *)
Definition score_unit : Z := if is_lin then (2 ^ s)%Z else (2 ^ s * 2 ^ s * (2 ^ s * 2 ^ s))%Z.
Definition score_root : Z := match file_kind x with Lin | Parity => 1%Z | _ => Z.of_nat d end.
Definition score_divisor : I.type := divisor (F.PtoP (exp_precision how)) score_unit score_root.

(* Without softmax D is score_unit * sqrt score_root * 2^weight_bits. *)
Definition D_bracket : bracket :=
  let n := (score_unit * 2 ^ weight_bits how)%Z in
  let low := Z.sqrt (n * n * score_root) in
  (low, if (low * low =? n * n * score_root)%Z then low else (low + 1)%Z).

Definition token_queries : list token_query :=
  let div := score_divisor in
  let D := D_bracket in
  map (fun '(t, row) => {| q_soft := file_softmax x; q_bos := is_bos; q_own := t; q_D := D; q_weights := weights_of div row |})
      (combine (seq 0 (file_T x)) scores_table).

(* What position i mixes of its own and of the other positions. *)
Definition position_weights : list (bracket * list bracket) :=
  let div := score_divisor in
  map (fun '(i, row) => let w := weights_of div row in (nth i w (0, 0)%Z, but i w))
      (combine (seq 0 (file_L x)) (integers2 fmt s (A_words x))).

(* ---- One region ------------------------------------------------------------------------------------------------------------- *)

Variable margins : list Z. (* over 2^shift *)
Variable shift : Z.

(* What each neuron, and D, adds to (logit of `right`) - (logit of c) - margin. *)
Definition slopes (out : list (list Z) * list Z) (right c : nat) (margin : Z) : list Z :=
  let g := (2 ^ (shift - s))%Z in
  let difference row := ((zat1 row right - zat1 row c) * g)%Z in
  map difference (fst out) ++ [(difference (snd out) - margin)%Z].

(* W_2 and b_2. *)
Definition outputs : list (list Z) * list Z :=
  (integers2 fmt s (W_2_words x), integers1 fmt s (b_2_words x)).

(* A form, its range, and its slope. *)
Definition neuron_of (y : (zform * (Z * Z)) * Z) : neuron :=
  let '((f, (low, high)), slope) := y in {| its_form := f; low := low; high := high; slope := slope |}.

Definition is_undecided (y : zform * (Z * Z)) : bool := let '(_, (low, high)) := y in ((low <? 0) && (0 <? high))%Z.

(* The first bits of a number. *)
Definition rounded (bits a : Z) : Z := let rest := Z.max 0 (Z.log2 (Z.abs a) - bits) in Z.shiftl (Z.shiftr a rest) rest.

(* A line below what a neuron adds: the form itself where it is on, the chord where being on makes the difference less,
   and else the form or nothing. *)
Definition line_of (rises : Z -> Z -> bool) (n : neuron) : Z :=
  if (high n <=? 0)%Z then 0%Z
  else if (0 <=? low n)%Z then rounded (line_bits how) (slope n)
  else if (slope n <? 0)%Z then rounded (line_bits how) (slope n * high n / (high n - low n))
  else if rises (low n) (high n) then rounded (line_bits how) (slope n) else 0%Z.

Definition ways_to_rise : list (Z -> Z -> bool) :=
  [fun low high => (- low <? high)%Z; fun _ _ => true; fun _ _ => false].

Definition region_is_right (out : list (list Z) * list Z) (least : zform -> Z) (ranges : list (zform * (Z * Z)))
    (right : nat) (margin : Z) : bool :=
  let few := (length (filter is_undecided ranges) <=? most_undecided how)%nat in
  all_of (fun c =>
      if (c =? right)%nat then true
      else let neurons := map neuron_of (combine ranges (slopes out right c margin)) in
           if separately neurons then true
           else if any_of (fun rises => relaxed least (line_of rises) neurons) ways_to_rise then true
           else if few then jointly least neurons no_form else false)
    (seq 0 (file_classes x)).

(* ---- All regions --------------------------------------------------------------------------------------------------------------- *)

(* The first cluster that divides a group of the region, and the group. *)
Definition divides (N : token_set) (group : nat * token_set) : bool :=
  match fst group with
  | O => false
  | _ => existsb id (both (snd group) N) && existsb id (without (snd group) N)
  end.
Fixpoint first_divided (N : token_set) (j : nat) (r : region) : option nat :=
  match r with
  | [] => None
  | group :: rest => if divides N group then Some j else first_divided N (S j) rest
  end.
Fixpoint choose (sets : list token_set) (r : region) : option (nat * token_set) :=
  match sets with
  | [] => None
  | N :: sets' => match first_divided N 0 r with Some j => Some (j, N) | None => choose sets' r end
  end.

(* Each form, with what is prepared of it and of its negative. *)
Definition prepare_all {X : Type} (prepare : zform -> X) (all : list (zform * zform)) : list (zform * (X * X)) :=
  map (fun '(f, minus_f) => (f, (prepare f, prepare minus_f))) all.

(* Each form, with its least and its largest value. *)
Definition ranges_of {X : Type} (least : X -> Z) (prepared : list (zform * (X * X))) : list (zform * (Z * Z)) :=
  map (fun '(f, (y, z)) => (f, (least y, Z.opp (least z)))) prepared.

(* The class that is right for a count. *)
Definition right_class (k : nat) : nat :=
  match file_kind x with Parity => k mod 2 | _ => k - file_first_count x end.

Definition token_is_right (out : list (list Z) * list Z) (all : list (zform * zform)) (q : token_query) : bool :=
  let prepared := prepare_all (prepare_tokens q) all in
  all_of (fun k =>
      by_splitting (splits how) (choose (nth (q_own q) (clusters how) []))
        (fun r => region_is_right out (least_by_tokens q r) (ranges_of (least_in_region r) prepared)
                    (right_class k) (nth (k - 1) margins 0%Z))
        (cell (file_T x) (file_L x) (q_own q) k))
    (seq 1 (file_L x)).

Definition position_is_right (out : list (list Z) * list Z) (all : list (zform * zform)) (D : bracket)
    (weights : bracket * list bracket) : bool :=
  all_of (fun t =>
      let q := {| p_soft := file_softmax x; p_own := t; p_D := D;
                  p_own_weight := fst weights; p_weights := snd weights |} in
      let prepared := prepare_all (prepare_positions q (file_T x)) all in
      all_of (fun k =>
          region_is_right out (least_by_positions q (file_T x) k) (ranges_of (least_for_count k) prepared)
            (right_class k) (nth (k - 1) margins 0%Z))
        (seq 1 (file_L x)))
    (seq 0 (file_T x)).

Definition bracket_eq_dec (a b : bracket * list bracket) : {a = b} + {a <> b}.
Proof. repeat decide equality. Defined.

Definition cells_are_right : bool :=
  let all := forms in
  let out := outputs in
  if is_lin
  then let D := D_bracket in all_of (position_is_right out all D) (nodup bracket_eq_dec position_weights)
  else all_of (token_is_right out all) token_queries.

Definition margins_are_positive : bool := forallb (fun k => 0 <? nth (k - 1) margins 0)%Z (seq 1 (file_L x)).

Definition answers_are_right : bool :=
  shapes_hold && words_fit && (0 <=? weight_bits how)%Z && (s <=? shift)%Z && margins_are_positive && cells_are_right.

Definition is_parity : bool := match file_kind x with Parity => true | _ => false end.
Definition check : bool := negb is_parity && answers_are_right.
End Check.

(* Of a parity model, with one margin for all counts. *)
Definition check_parity (x : file) (s : Z) (how : effort) (margin shift : Z) : bool :=
  is_parity x && negb (file_softmax x) && (0 <? margin)%Z && answers_are_right x s how (repeat margin (file_L x)) shift.
