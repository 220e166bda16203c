(* The check of a Count01 file: signs of sums of exponentials, at the vertices of the counts and along their rays. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Interval Require Import Interval.Float_full.
From Weightproof Require Import Model Stored Sums Forms Queries Words Exponentials Check Tables Prompts.
Import ListNotations.
Open Scope R_scope.

(* ---- Sums of exponentials: pairs of an exponent, over a unit, and a coefficient ------------------------------------------------ *)

Definition exponentials : Type := list (Z * Z).
Definition sum_at (unit : R) (l : exponentials) : R := total (map (fun '(e, c) => IZR c * exp (IZR e / unit)) l).

(* Coefficients of equal exponents are added, so that what cancels exactly is seen. *)
Fixpoint put (e c : Z) (l : exponentials) : exponentials :=
  match l with
  | [] => [(e, c)]
  | (f, b) :: l' => if (e =? f)%Z then (f, (c + b)%Z) :: l' else (f, b) :: put e c l'
  end.
Definition joined (l : exponentials) : exponentials := fold_right (fun '(e, c) => put e c) [] l.

Lemma sum_of_put (unit : R) (e c : Z) (l : exponentials) :
  sum_at unit (put e c l) = IZR c * exp (IZR e / unit) + sum_at unit l.
Proof.
  unfold sum_at. induction l as [|[f b] l IH]; [reflexivity|]. cbn [put].
  destruct (Z.eqb_spec e f) as [->|_]; cbn [map total fold_right] in *; [rewrite plus_IZR; lra|].
  unfold total in IH. rewrite IH. lra.
Qed.

Lemma sum_of_joined (unit : R) (l : exponentials) : sum_at unit (joined l) = sum_at unit l.
Proof.
  induction l as [|[e c] l IH]; [reflexivity|]. cbn [joined fold_right]. fold (joined l). rewrite sum_of_put, IH. reflexivity.
Qed.

(* `brackets` are around the exponentials of some exponents, over the largest one. *)
Definition bracket_of (brackets : list (Z * bracket)) (e : Z) : bracket :=
  match find (fun '(f, _) => (f =? e)%Z) brackets with Some (_, b) => b | None => (0, 0)%Z end.
Definition known (brackets : list (Z * bracket)) (e : Z) : bool := existsb (fun '(f, _) => (f =? e)%Z) brackets.

Definition is_not_negative (brackets : list (Z * bracket)) (l : exponentials) : bool :=
  let l := joined l in
  if forallb (fun '(_, c) => 0 <=? c)%Z l then true
  else forallb (fun '(e, _) => known brackets e) l &&
       (0 <=? add_all (map (fun '(e, c) => least_product (bracket_of brackets e) c) l))%Z.

(* Nothing cancels. *)
Lemma positive_sum (unit : R) (l : exponentials) : forallb (fun '(_, c) => 0 <=? c)%Z l = true -> 0 <= sum_at unit l.
Proof.
  unfold sum_at. induction l as [|[e c] l IH]; [simpl; lra|]. cbn [forallb map total fold_right]. rewrite andb_true_iff, Z.leb_le.
  intros [Hc Hl]. apply IZR_le in Hc. specialize (IH Hl). unfold total in IH.
  assert (0 <= IZR c * exp (IZR e / unit)) by (apply Rmult_le_pos; [exact Hc|apply Rlt_le, exp_pos]). lra.
Qed.

Lemma not_negative_is_sound (unit factor : R) (brackets : list (Z * bracket)) (l : exponentials) :
  0 < factor -> (forall e b, In (e, b) brackets -> around b (factor * exp (IZR e / unit))) ->
  is_not_negative brackets l = true -> 0 <= sum_at unit l.
Proof.
  intros Hf Hb. rewrite <- sum_of_joined. unfold is_not_negative. generalize (joined l). clear l. intros l.
  destruct (forallb (fun '(_, c) => 0 <=? c)%Z l) eqn:Hpositive; [intros _; now apply positive_sum|]. clear Hpositive.
  rewrite andb_true_iff, forallb_forall, Z.leb_le. intros [Hknown H].
  assert (Hle : IZR (add_all (map (fun '(e, c) => least_product (bracket_of brackets e) c) l)) <= factor * sum_at unit l).
  { clear H. unfold sum_at. induction l as [|[e c] l IH]; [simpl; lra|]. cbn [map total fold_right add_all].
    fold (add_all (map (fun '(e, c) => least_product (bracket_of brackets e) c) l)).
    fold (total (map (fun '(e, c) => IZR c * exp (IZR e / unit)) l)).
    assert (IHl := IH (fun x Hx => Hknown x (or_intror Hx))). clear IH.
    specialize (Hknown (e, c) (or_introl eq_refl)). cbn in Hknown.
    assert (Ha : around (bracket_of brackets e) (factor * exp (IZR e / unit))).
    { unfold bracket_of. destruct (find _ brackets) as [[f b]|] eqn:Hfind.
      - apply find_some in Hfind as [Hin He]. apply Z.eqb_eq in He as <-. now apply Hb.
      - unfold known in Hknown. apply existsb_exists in Hknown as [[f b] [Hin He]].
        pose proof (find_none _ _ Hfind _ Hin) as Hno. cbn in Hno. congruence. }
    pose proof (least_product_is_least _ c _ Ha). rewrite plus_IZR. lra. }
  apply IZR_le in H. apply Rmult_le_reg_l with (1 := Hf). lra.
Qed.

(* ---- Linear forms in three counts ------------------------------------------------------------------------------------------------- *)

(* `holds k n0 n1 n2`: the form with k times its constant is not negative. *)
Definition holds_on_triangle (holds : Z -> Z -> Z -> Z -> bool) (is_more : bool) (most : option Z) (k n2 : Z) : bool :=
  let first := if is_more then 1%Z else 0%Z in
  match most with
  | Some b => let H := (b - first)%Z in
      if (H <? 0)%Z then true
      else if is_more then holds k 0%Z 1%Z n2 && holds k 0%Z b n2 && holds k H b n2
           else holds k 0%Z 0%Z n2 && holds k b 0%Z n2 && holds k b b n2
  | None => holds k 0%Z first n2 && holds 0%Z 1%Z 1%Z 0%Z && (if is_more then holds 0%Z 0%Z 1%Z 0%Z else holds 0%Z 1%Z 0%Z 0%Z)
  end.

Definition holds_everywhere (holds : Z -> Z -> Z -> Z -> bool) (is_more : bool) (most noise : option Z) : bool :=
  holds_on_triangle holds is_more most 1 0 &&
  match noise with Some M => holds_on_triangle holds is_more most 1 M | None => holds 0%Z 0%Z 0%Z 1%Z end.

Lemma triangle (u v w H a b : R) : 0 <= u -> 0 <= u + v * H -> 0 <= u + w * H -> 0 <= a -> 0 <= b -> a + b <= H ->
  0 <= u + v * a + w * b.
Proof.
  intros Hu Hv Hw Ha Hb Hab. destruct (Rle_lt_dec H 0) as [Hz|Hpos].
  - replace a with 0 by lra. replace b with 0 by lra. lra.
  - apply Rmult_le_reg_l with (1 := Hpos). rewrite Rmult_0_r.
    replace (H * (u + v * a + w * b)) with ((H - a - b) * u + a * (u + v * H) + b * (u + w * H)) by ring.
    assert (0 <= (H - a - b) * u) by (apply Rmult_le_pos; lra). assert (0 <= a * (u + v * H)) by (apply Rmult_le_pos; lra).
    assert (0 <= b * (u + w * H)) by (apply Rmult_le_pos; lra). lra.
Qed.

Section Forms.
Variables (A B0 B1 B2 : R) (holds : Z -> Z -> Z -> Z -> bool).
Hypothesis holds_is_sound : forall k n0 n1 n2, holds k n0 n1 n2 = true ->
  0 <= IZR k * A + IZR n0 * B0 + IZR n1 * B1 + IZR n2 * B2.

Lemma triangle_is_right (is_more : bool) (most : option Z) (n2 : Z) (n0 n1 : nat) :
  holds_on_triangle holds is_more most 1 n2 = true -> (n0 <? n1)%nat = is_more -> within most n0 -> within most n1 ->
  0 <= A + INR n0 * B0 + INR n1 * B1 + IZR n2 * B2.
Proof.
  unfold holds_on_triangle, within. rewrite !INR_IZR_INZ. intros H Hmore H0 H1.
  assert (Hn0 : 0 <= IZR (Z.of_nat n0)) by (apply IZR_le; lia).
  destruct is_more.
  - apply Nat.ltb_lt in Hmore. assert (Hk : exists k, Z.of_nat n1 = (Z.of_nat n0 + 1 + k)%Z /\ (0 <= k)%Z)
      by (exists (Z.of_nat n1 - Z.of_nat n0 - 1)%Z; lia). destruct Hk as (k & Hk & Hpos).
    rewrite Hk, !plus_IZR in *. assert (0 <= IZR k) by now apply IZR_le. set (a := IZR (Z.of_nat n0)) in *.
    destruct most as [b|].
    + destruct (Z.ltb_spec (b - 1) 0) as [Hneg|_]; [lia|]. rewrite !andb_true_iff in H. destruct H as [[Ha Hb] Hc].
      apply holds_is_sound in Ha, Hb, Hc. rewrite minus_IZR in Hc.
      pose proof (triangle (A + B1 + IZR n2 * B2) (B0 + B1) B1 (IZR b - 1) a (IZR k)) as Ht.
      assert (a + IZR k <= IZR b - 1) by (unfold a; rewrite <- plus_IZR, <- minus_IZR; apply IZR_le; lia).
      specialize (Ht ltac:(lra) ltac:(lra) ltac:(lra) Hn0 ltac:(lra) ltac:(lra)). lra.
    + rewrite !andb_true_iff in H. destruct H as [[Ha Hb] Hc]. apply holds_is_sound in Ha, Hb, Hc.
      assert (0 <= a * (B0 + B1)) by (apply Rmult_le_pos; lra). assert (0 <= IZR k * B1) by (apply Rmult_le_pos; lra). lra.
  - apply Nat.ltb_ge in Hmore. assert (Hk : exists k, Z.of_nat n0 = (Z.of_nat n1 + k)%Z /\ (0 <= k)%Z)
      by (exists (Z.of_nat n0 - Z.of_nat n1)%Z; lia). destruct Hk as (k & Hk & Hpos).
    rewrite Hk, !plus_IZR in *. assert (0 <= IZR k) by now apply IZR_le.
    assert (Hn1 : 0 <= IZR (Z.of_nat n1)) by (apply IZR_le; lia). set (a := IZR (Z.of_nat n1)) in *.
    destruct most as [b|].
    + destruct (Z.ltb_spec (b - 0) 0) as [Hneg|_]; [lia|]. rewrite !andb_true_iff in H. destruct H as [[Ha Hb] Hc].
      apply holds_is_sound in Ha, Hb, Hc.
      pose proof (triangle (A + IZR n2 * B2) (B0 + B1) B0 (IZR b) a (IZR k)) as Ht.
      assert (a + IZR k <= IZR b) by (unfold a; rewrite <- plus_IZR; apply IZR_le; lia).
      specialize (Ht ltac:(lra) ltac:(lra) ltac:(lra) Hn1 ltac:(lra) ltac:(lra)). lra.
    + rewrite !andb_true_iff in H. destruct H as [[Ha Hb] Hc]. apply holds_is_sound in Ha, Hb, Hc.
      assert (0 <= a * (B0 + B1)) by (apply Rmult_le_pos; lra). assert (0 <= IZR k * B0) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma everywhere_is_right (is_more : bool) (most noise : option Z) (n0 n1 n2 : nat) :
  holds_everywhere holds is_more most noise = true -> (n0 <? n1)%nat = is_more ->
  within most n0 -> within most n1 -> within noise n2 ->
  0 <= A + INR n0 * B0 + INR n1 * B1 + INR n2 * B2.
Proof.
  unfold holds_everywhere. rewrite andb_true_iff. intros [H Hnoise] Hmore H0 H1 H2.
  pose proof (triangle_is_right _ _ _ n0 n1 H Hmore H0 H1) as Hfirst. pose proof (pos_INR n2) as Hn2.
  destruct noise as [M|].
  - pose proof (triangle_is_right _ _ _ n0 n1 Hnoise Hmore H0 H1) as Hlast. unfold within in H2.
    assert (INR n2 <= IZR M) by (rewrite INR_IZR_INZ; now apply IZR_le).
    pose proof (triangle (A + INR n0 * B0 + INR n1 * B1) B2 0 (IZR M) (INR n2) 0) as Ht.
    specialize (Ht ltac:(lra) ltac:(lra) ltac:(lra) Hn2 ltac:(lra) ltac:(lra)). lra.
  - apply holds_is_sound in Hnoise. assert (0 <= INR n2 * B2) by (apply Rmult_le_pos; lra). lra.
Qed.
End Forms.

(* ---- The integers of a file ---------------------------------------------------------------------------------------------------------- *)

(* v @ W, with k columns. *)
Definition row_times (v : list Z) (W : list (list Z)) (k : nat) : list Z := map (fun c => zdot v (column c W)) (seq 0 k).

(* How to check: bits of the brackets around exponentials, and of the interval arithmetic that they come from. *)
Record prompt_effort := { bracket_bits : Z; interval_precision : positive }.

Section Check.
Variable x : prompt_file.
Variable s : Z.  (* every weight is an integer over 2^s *)
Variable how : prompt_effort.
Variables digits noise : option Z.
Variables thesis over_sum : bool.
Variables margin shift : Z.  (* the margin over 2^shift *)

Let fmt := words_format x.

Definition prompt_shapes_hold : bool :=
  has_shape 8 (words_dim x) (emb_words x) && has_shape (words_dim x) (words_head x) (w_q_words x) &&
  has_shape (words_dim x) (words_head x) (w_k_words x) && has_shape (words_dim x) (words_head x) (w_v_words x) &&
  has_shape (words_head x) (words_dim x) (w_o_words x) && has_shape (words_dim x) (words_answers x) (w_out_words x) &&
  has_length (words_answers x) (b_out_words x) && (8 <=? words_answers x)%nat.

Definition prompt_words_fit : bool :=
  (0 <=? s)%Z && all_fit2 fmt s (emb_words x) && all_fit2 fmt s (w_q_words x) && all_fit2 fmt s (w_k_words x) &&
  all_fit2 fmt s (w_v_words x) && all_fit2 fmt s (w_o_words x) && all_fit2 fmt s (w_out_words x) &&
  all_fit1 fmt s (b_out_words x).

Definition emb_row (t : nat) : list Z := nth t (integers2 fmt s (emb_words x)) [].

(* Over 16^s: the scores of the tokens after the token `last`, and what each adds to the logits. *)
Definition scores_after (q : nat) : list Z :=
  let query := row_times (emb_row q) (integers2 fmt s (w_q_words x)) (words_head x) in
  map (fun t => zdot query (row_times (emb_row t) (integers2 fmt s (w_k_words x)) (words_head x))) (seq 0 8).
Definition value_of_token (t : nat) : list Z :=
  row_times (row_times (row_times (emb_row t) (integers2 fmt s (w_v_words x)) (words_head x))
    (integers2 fmt s (w_o_words x)) (words_dim x)) (integers2 fmt s (w_out_words x)) (words_answers x).
Definition values_table : list (list Z) := map value_of_token (seq 0 8).
Definition own_row (q : nat) : list Z :=
  if words_skip x then row_times (emb_row q) (integers2 fmt s (w_out_words x)) (words_answers x) else [].
Definition constant (own bias : list Z) (c : nat) : Z := (zat1 own c * (2 ^ s * 2 ^ s) + zat1 bias c * (2 ^ s * 2 ^ s * 2 ^ s))%Z.

(* What a token adds to (logit of `due` - logit of c - margin), times its weight; over 2^shift. *)
Definition gain (values : list (list Z)) (own bias : list Z) (due c t : nat) : Z :=
  ((zat2 values t due - zat2 values t c + (constant own bias due - constant own bias c)) * 2 ^ (shift - 4 * s)
   - if over_sum then 0 else margin)%Z.

(* All of it, with k times what every prompt has. *)
Definition lead (q : nat) (scores : list Z) (gains : list Z) (k n0 n1 n2 : Z) : exponentials :=
  let of t factor := (zat1 scores t, (factor * zat1 gains t)%Z) in
  [of 0%nat k; of 1%nat n0; of 2%nat n1; of 3%nat n2; of 4%nat k] ++
  (if (q =? 4)%nat then [] else [of q k]) ++ (if over_sum then [(0%Z, (- (k * margin))%Z)] else []).

Definition brackets_of (exponents : list Z) : list (Z * bracket) :=
  let prec := F.PtoP (interval_precision how) in
  let div := divisor prec (2 ^ s * 2 ^ s * (2 ^ s * 2 ^ s))%Z 1 in
  let top := largest exponents in
  map (fun n => (n, exp_bracket prec (bracket_bits how) div (n - top))) exponents.

Definition exponents_after (q : nat) (scores : list Z) : list Z :=
  nodup Z.eq_dec ((if over_sum then [0%Z] else []) ++ map (zat1 scores) [0; 1; 2; 3; 4; q]%nat).

(* What is due after the token q. *)
Definition due_after (q : nat) (is_more : bool) : nat :=
  if (q =? 4)%nat then (if Bool.eqb is_more thesis then 6 else 5)%nat else 7%nat.

Definition token_leads (values : list (list Z)) (bias : list Z) (q : nat) : bool :=
  let scores := scores_after q in
  let own := own_row q in
  let brackets := brackets_of (exponents_after q scores) in
  forallb (fun is_more =>
    let due := due_after q is_more in
    forallb (fun c =>
      if (c =? due)%nat then true
      else let gains := map (gain values own bias due c) (seq 0 8) in
           holds_everywhere (fun k n0 n1 n2 => is_not_negative brackets (lead q scores gains k n0 n1 n2)) is_more digits noise)
      (seq 0 (words_answers x)))
    [true; false].

Definition check_prompts : bool :=
  prompt_shapes_hold && prompt_words_fit && (0 <=? bracket_bits how)%Z && (4 * s <=? shift)%Z && (0 <? margin)%Z &&
  let values := values_table in
  let bias := integers1 fmt s (b_out_words x) in
  forallb (token_leads values bias) [4; 5; 6]%nat.
End Check.
