(* What the check of a Count01 file shows: if it says true, the file answers all prompts of its claim. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Interval Require Import Interval.Float_full.
From Weightproof Require Import Model Stored Sums Forms Queries Words Exponentials Check Tables Correct Prompts PromptChecks.
Import ListNotations.
Open Scope R_scope.

(* ---- Logits are means ------------------------------------------------------------------------------------------------------------- *)

Lemma row_product_plus (n : nat) (u v : nat -> R) (W : matrix) (c : nat) :
  row_product n (fun j => u j + v j) W c = row_product n u W c + row_product n v W c.
Proof. unfold row_product. rewrite <- sum_plus. apply sum_ext. intros j _. lra. Qed.

Lemma row_product_total (n : nat) (a : nat -> R) (v : nat -> nat -> R) (l : list nat) (W : matrix) (c : nat) :
  row_product n (fun j => total (map (fun t => a t * v t j) l)) W c = total (map (fun t => a t * row_product n (v t) W c) l).
Proof.
  unfold row_product. rewrite (sum_ext _ _ (fun j => total (map (fun t => a t * v t j * at2 W j c) l))).
  - rewrite sum_total. apply total_ext. intros t _. rewrite <- sum_scale. apply sum_ext. intros j _. lra.
  - intros j _. rewrite Rmult_comm, <- total_scale. apply total_ext. intros t _. lra.
Qed.

Lemma row_product_ext (n : nat) (u v : nat -> R) (W : matrix) (c : nat) :
  (forall j, (j < n)%nat -> u j = v j) -> row_product n u W c = row_product n v W c.
Proof. intros H. unfold row_product. apply sum_ext. intros j Hj. now rewrite H. Qed.

Definition token_value (m : prompt_model) (t c : nat) : R :=
  row_product (dim m) (row_product (head m) (row_product (dim m) (at2 (emb m) t) (w_v m)) (w_o m)) (w_out m) c.
Definition own_logit (m : prompt_model) (q c : nat) : R :=
  (if has_skip m then row_product (dim m) (at2 (emb m) q) (w_out m) c else 0) + at1 (b_out m) c.

Lemma logit_is_mean (m : prompt_model) (x : list nat) (c : nat) :
  logit_after m x c
  = own_logit m (last x O) c + total (map (fun t => key_weight m x t / weights_sum m x * token_value m t c) x).
Proof.
  unfold logit_after, stream_after, own_logit. rewrite row_product_plus.
  rewrite (row_product_ext (dim m) (row_product (head m) (mixed_value m x) (w_o m))
    (fun j => total (map (fun t => key_weight m x t / weights_sum m x
       * row_product (head m) (row_product (dim m) (at2 (emb m) t) (w_v m)) (w_o m) j) x))).
  2: { intros j _. unfold mixed_value. apply row_product_total. }
  rewrite row_product_total. unfold token_value.
  assert (Hskip : row_product (dim m) (fun j => if has_skip m then at2 (emb m) (last x O) j else 0) (w_out m) c
    = if has_skip m then row_product (dim m) (at2 (emb m) (last x O)) (w_out m) c else 0).
  { destruct (has_skip m); [reflexivity|]. unfold row_product. rewrite (sum_ext _ _ (fun _ => 0)); [apply sum_zero|].
    intros j _. apply Rmult_0_l. }
  rewrite Hskip, Rplus_assoc, (Rplus_comm (total _)), <- Rplus_assoc. reflexivity.
Qed.

Lemma lead_times_sum (m : prompt_model) (x : list nat) (due c : nat) : 0 < weights_sum m x ->
  weights_sum m x * (logit_after m x due - logit_after m x c)
  = total (map (fun t => key_weight m x t * (token_value m t due - token_value m t c
      + (own_logit m (last x O) due - own_logit m (last x O) c))) x).
Proof.
  intros HD. rewrite !logit_is_mean. set (D := weights_sum m x) in *. set (K := own_logit m (last x O)).
  rewrite (total_ext (fun t => key_weight m x t * (token_value m t due - token_value m t c + (K due - K c)))
    (fun t => D * (key_weight m x t / D * token_value m t due)
     + ((-D) * (key_weight m x t / D * token_value m t c) + (K due - K c) * key_weight m x t))).
  - rewrite total_plus, total_plus, !total_scale.
    change (total (map (key_weight m x) x)) with D. unfold K. ring.
  - intros t _. field. lra.
Qed.

(* A sum over a string of digits. *)
Lemma digits_total (f : nat -> R) (x : list nat) : Forall (fun t => t = 1 \/ t = 2 \/ t = 3)%nat x ->
  total (map f x) = INR (how_many x 1) * f 1%nat + INR (how_many x 2) * f 2%nat + INR (how_many x 3) * f 3%nat.
Proof.
  unfold how_many. induction 1 as [|t x Ht _ IH]; [simpl; lra|]. cbn [map total fold_right]. fold (total (map f x)). rewrite IH.
  destruct Ht as [->|[->| ->]]; cbn [count_occ]; repeat destruct (Nat.eq_dec _ _); try lia; rewrite S_INR; lra.
Qed.

(* ---- Integers and the numbers they stand for ------------------------------------------------------------------------------------- *)

Section File.
Variable x : prompt_file.
Variable s : Z.
Hypothesis shapes : prompt_shapes_hold x = true.
Hypothesis fit : prompt_words_fit x s = true.

Local Notation m := (stored_prompt_model x).
Let fmt := words_format x.
Let one := IZR (2 ^ s).

Lemma prompt_s_not_negative : (0 <= s)%Z.
Proof. unfold prompt_words_fit in fit. rewrite !andb_true_iff, Z.leb_le in fit. tauto. Qed.

Lemma prompt_one_positive : 0 < one.
Proof. apply IZR_lt, Z.pow_pos_nonneg; [lia|apply prompt_s_not_negative]. Qed.

Lemma length_row_times (v : list Z) (W : list (list Z)) (k : nat) : length (row_times v W k) = k.
Proof. unfold row_times. now rewrite map_length, seq_length. Qed.

Lemma row_times_is_product (v : nat -> R) (u : list Z) (n k c : nat) (W : list (list Z)) (a : R) :
  all_fit2 fmt s W = true -> 0 < a -> length u = n -> (forall j, (j < n)%nat -> v j = IZR (zat1 u j) / a) -> (c < k)%nat ->
  row_product n v (matrix_of fmt W) c = IZR (zat1 (row_times u (integers2 fmt s W) k) c) / (a * one).
Proof.
  intros HW Ha Hu Hv Hc. pose proof prompt_one_positive as Hone. pose proof prompt_s_not_negative as Hs.
  unfold row_times. unfold zat1 at 1. rewrite nth_map_seq by assumption.
  rewrite (zdot_sum _ _ n) by assumption. unfold row_product, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros j Hj.
  rewrite Hv by assumption. rewrite (at2_matrix_of _ s) by assumption. rewrite zat1_column. fold one. field. lra.
Qed.

Lemma emb_shape (t : nat) : (t < 8)%nat -> length (emb_row x s t) = dim m.
Proof.
  intros Ht. unfold prompt_shapes_hold in shapes. rewrite !andb_true_iff in shapes.
  destruct shapes as [[[[[[[HE _] _] _] _] _] _] _].
  destruct (has_shape_map _ _ (integer fmt s) _ HE) as [Hlen Hrows].
  apply (length_nth_row (words_dim x)); [exact Hrows|]. unfold integers2. change (map (integers1 (words_format x) s) (emb_words x)) with (map (map (integer fmt s)) (emb_words x)). lia.
Qed.

Lemma emb_is_stored (t j : nat) : at2 (emb m) t j = IZR (zat1 (emb_row x s t) j) / one.
Proof.
  apply at2_matrix_of; [apply prompt_s_not_negative|]. unfold prompt_words_fit in fit. rewrite !andb_true_iff in fit. tauto.
Qed.

Lemma all_words_fit :
  all_fit2 fmt s (w_q_words x) = true /\ all_fit2 fmt s (w_k_words x) = true /\ all_fit2 fmt s (w_v_words x) = true /\
  all_fit2 fmt s (w_o_words x) = true /\ all_fit2 fmt s (w_out_words x) = true /\ all_fit1 fmt s (b_out_words x) = true.
Proof. unfold prompt_words_fit in fit. rewrite !andb_true_iff in fit. unfold fmt. tauto. Qed.

Let unit := one * one * (one * one).

Lemma key_score_is_stored (q t : nat) : (q < 8)%nat -> (t < 8)%nat ->
  key_score m q t = IZR (zat1 (scores_after x s q) t) / unit.
Proof.
  intros Hq Ht. pose proof prompt_one_positive as Hone. destruct all_words_fit as (HQ & HK & _).
  unfold scores_after. unfold zat1 at 1. rewrite nth_map_seq by assumption.
  rewrite (zdot_sum _ _ (head m)) by apply length_row_times.
  unfold key_score, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros c Hc.
  change (w_q m) with (matrix_of fmt (w_q_words x)). change (w_k m) with (matrix_of fmt (w_k_words x)).
  rewrite (row_times_is_product _ (emb_row x s q) (dim m) (head m) c _ one HQ Hone (emb_shape q Hq)) by (assumption || (intros; apply emb_is_stored)).
  rewrite (row_times_is_product _ (emb_row x s t) (dim m) (head m) c _ one HK Hone (emb_shape t Ht)) by (assumption || (intros; apply emb_is_stored)).
  unfold unit. fold fmt. cbn [head stored_prompt_model]. field. lra.
Qed.

Lemma token_value_is_stored (t c : nat) : (t < 8)%nat -> (c < answers m)%nat ->
  token_value m t c = IZR (zat2 (values_table x s) t c) / unit.
Proof.
  intros Ht Hc. pose proof prompt_one_positive as Hone. destruct all_words_fit as (_ & _ & HV & HO & Hout & _).
  assert (H1 : forall j, (j < head m)%nat -> row_product (dim m) (at2 (emb m) t) (w_v m) j
    = IZR (zat1 (row_times (emb_row x s t) (integers2 fmt s (w_v_words x)) (words_head x)) j) / (one * one)).
  { intros j Hj. apply (row_times_is_product _ _ _ _ _ _ one HV Hone (emb_shape t Ht)); [intros; apply emb_is_stored|exact Hj]. }
  assert (H2 : forall j, (j < dim m)%nat -> row_product (head m) (row_product (dim m) (at2 (emb m) t) (w_v m)) (w_o m) j
    = IZR (zat1 (row_times (row_times (emb_row x s t) (integers2 fmt s (w_v_words x)) (words_head x))
        (integers2 fmt s (w_o_words x)) (words_dim x)) j) / (one * one * one)).
  { intros j Hj. apply (row_times_is_product _ _ _ _ _ _ (one * one) HO); [nra|apply length_row_times|exact H1|exact Hj]. }
  unfold token_value, zat2, values_table. rewrite nth_map_seq by assumption. unfold value_of_token.
  replace unit with (one * one * one * one) by (unfold unit; ring).
  apply (row_times_is_product _ _ _ _ _ _ (one * one * one) Hout);
    [repeat apply Rmult_lt_0_compat; assumption|apply length_row_times|exact H2|exact Hc].
Qed.

Lemma own_logit_is_stored (q c : nat) : (q < 8)%nat -> (c < answers m)%nat ->
  own_logit m q c = IZR (constant s (own_row x s q) (integers1 fmt s (b_out_words x)) c) / unit.
Proof.
  intros Hq Hc. pose proof prompt_one_positive as Hone. destruct all_words_fit as (_ & _ & _ & _ & Hout & Hb).
  unfold own_logit, constant, own_row. rewrite plus_IZR, !mult_IZR. fold one.
  change (b_out m) with (vector_of fmt (b_out_words x)). rewrite (at1_vector_of fmt s) by (apply prompt_s_not_negative || assumption).
  cbn [has_skip stored_prompt_model]. unfold unit. destruct (words_skip x).
  - change (w_out m) with (matrix_of fmt (w_out_words x)).
    rewrite (row_times_is_product _ (emb_row x s q) (dim m) (answers m) c _ one Hout Hone (emb_shape q Hq)) by (assumption || (intros; apply emb_is_stored)).
    cbn [answers stored_prompt_model]. fold fmt one. field. lra.
  - replace (zat1 [] c) with 0%Z by (unfold zat1; now destruct c). fold one. field. lra.
Qed.

(* ---- One prompt ------------------------------------------------------------------------------------------------------------------- *)

Variable how : prompt_effort.
Variables digits noise : option Z.
Variables thesis over_sum : bool.
Variables margin shift : Z.
Hypothesis bits_not_negative : (0 <= bracket_bits how)%Z.
Hypothesis shift_suffices : (4 * s <= shift)%Z.

Lemma unit_is_positive : 0 < unit.
Proof. pose proof prompt_one_positive. unfold unit. repeat apply Rmult_lt_0_compat; assumption. Qed.

Lemma brackets_are_around (exponents : list Z) (e : Z) (b : bracket) :
  In (e, b) (brackets_of s how exponents) ->
  around b (exp (- (IZR (largest exponents) / unit)) * IZR (2 ^ bracket_bits how) * exp (IZR e / unit)).
Proof.
  intros Hin. unfold brackets_of in Hin. apply in_map_iff in Hin as [n [Heq Hin]]. injection Heq as <- <-.
  pose proof (largest_is_largest _ _ Hin) as Hle. pose proof prompt_s_not_negative as Hs. pose proof unit_is_positive as Hu.
  assert (Hden : (0 < 2 ^ s * 2 ^ s * (2 ^ s * 2 ^ s))%Z) by (assert (0 < 2 ^ s)%Z by (apply Z.pow_pos_nonneg; lia); nia).
  pose proof (exp_bracket_is_around (F.PtoP (interval_precision how)) (bracket_bits how) _ 1 (n - largest exponents)%Z
    bits_not_negative ltac:(lia) Hden ltac:(lia)) as H.
  rewrite sqrt_1, Rmult_1_r, !mult_IZR in H. fold one in H. fold unit in H.
  replace (exp (- (IZR (largest exponents) / unit)) * IZR (2 ^ bracket_bits how) * exp (IZR n / unit))
    with (exp (IZR (n - largest exponents) / unit) * IZR (2 ^ bracket_bits how)); [exact H|].
  rewrite minus_IZR, (Rmult_comm (exp (- _))), Rmult_assoc, <- exp_plus, Rmult_comm. do 2 f_equal. field. lra.
Qed.

Section Prompt.
Variables (q due c : nat).
Hypothesis q_is_last : q = 4%nat \/ q = 5%nat \/ q = 6%nat.
Hypothesis due_below : (due < answers m)%nat.
Hypothesis c_below : (c < answers m)%nat.

Let scores := scores_after x s q.
Let bias := integers1 fmt s (b_out_words x).
Let gains := map (gain s over_sum margin shift (values_table x s) (own_row x s q) bias due c) (seq 0 8).
Let u (t : nat) : R := exp (IZR (zat1 scores t) / unit).
Let g (t : nat) : R := IZR (zat1 gains t).

(* What every prompt has: BOS, "=", and the answer that is read. *)
Let always : R :=
  g 0%nat * u 0%nat + g 4%nat * u 4%nat + (if (q =? 4)%nat then 0 else g q * u q) - (if over_sum then IZR margin else 0).

Lemma lead_is_a_form (k n0 n1 n2 : Z) :
  sum_at unit (lead over_sum margin q scores gains k n0 n1 n2)
  = IZR k * always + IZR n0 * (g 1%nat * u 1%nat) + IZR n1 * (g 2%nat * u 2%nat) + IZR n2 * (g 3%nat * u 3%nat).
Proof.
  unfold sum_at, lead, always, g, u. rewrite !map_app, !total_app.
  assert (H0 : exp (IZR 0 / unit) = 1) by (unfold Rdiv; now rewrite Rmult_0_l, exp_0).
  destruct (q =? 4)%nat, over_sum; cbn [map total fold_right]; rewrite ?opp_IZR, ?mult_IZR, ?H0; ring.
Qed.

(* 2^shift times what a token adds to the lead, less the margin where that is due for each token. *)
Lemma gain_is_stored (t : nat) : (t < 8)%nat ->
  g t = IZR (2 ^ shift) * (token_value m t due - token_value m t c + (own_logit m q due - own_logit m q c))
        - (if over_sum then 0 else IZR margin).
Proof.
  intros Ht. pose proof prompt_one_positive as Hone. pose proof prompt_s_not_negative as Hs.
  assert (Hq : (q < 8)%nat) by lia.
  unfold g, gains. unfold zat1. rewrite nth_map_seq by assumption. unfold gain.
  rewrite minus_IZR, mult_IZR, plus_IZR, !minus_IZR.
  rewrite !token_value_is_stored, !own_logit_is_stored by assumption.
  assert (Hshift : IZR (2 ^ shift) = unit * IZR (2 ^ (shift - 4 * s))).
  { unfold unit, one. rewrite <- !mult_IZR. f_equal. rewrite <- !Z.pow_add_r by lia. f_equal. lia. }
  rewrite Hshift. fold bias. pose proof unit_is_positive. destruct over_sum; field; lra.
Qed.

Lemma prompt_leads (ds : list nat) (is_more : bool) :
  let holds := fun k n0 n1 n2 =>
    is_not_negative (brackets_of s how (exponents_after over_sum q scores)) (lead over_sum margin q scores gains k n0 n1 n2) in
  let xs := (0 :: ds ++ if q =? 4 then [4] else [4; q])%nat in
  Forall (fun t => t = 1 \/ t = 2 \/ t = 3)%nat ds ->
  holds_everywhere holds is_more digits noise = true ->
  (how_many ds 1 <? how_many ds 2)%nat = is_more ->
  within digits (how_many ds 1) -> within digits (how_many ds 2) -> within noise (how_many ds 3) ->
  logit_after m xs c + IZR margin / IZR (2 ^ shift) / (if over_sum then weights_sum m xs else 1) <= logit_after m xs due.
Proof.
  intros holds xs Hds Hholds Hmore H0 H1 H2.
  pose proof prompt_s_not_negative as Hs.
  assert (Htwo : 0 < IZR (2 ^ shift)) by (apply IZR_lt, Z.pow_pos_nonneg; lia).
  assert (Hlast : last xs O = q).
  { unfold xs. destruct (Nat.eqb_spec q 4) as [->|_].
    - change (0 :: ds ++ [4])%nat with ((0 :: ds) ++ [4])%nat. apply last_last.
    - replace (0 :: ds ++ [4; q])%nat with ((0 :: ds ++ [4]) ++ [q])%nat by (cbn; now rewrite <- app_assoc). apply last_last. }
  assert (Hw : forall t, (t < 8)%nat -> key_weight m xs t = u t).
  { intros t Ht. unfold key_weight, u. rewrite Hlast, key_score_is_stored by lia. reflexivity. }
  assert (HD : 0 < weights_sum m xs).
  { unfold weights_sum. apply total_positive; [discriminate|]. intros t _. apply exp_pos. }
  assert (Hsum : forall f : nat -> R, total (map f xs) = f 0%nat + (INR (how_many ds 1) * f 1%nat + INR (how_many ds 2) * f 2%nat
      + INR (how_many ds 3) * f 3%nat) + f 4%nat + (if (q =? 4)%nat then 0 else f q)).
  { intros f. unfold xs. cbn [map total fold_right]. fold (total (map f (ds ++ if q =? 4 then [4] else [4; q])%nat)).
    rewrite map_app, total_app, digits_total by assumption. destruct (q =? 4)%nat; cbn [map total fold_right]; ring. }
  assert (Hform : 0 <= always + INR (how_many ds 1) * (g 1%nat * u 1%nat) + INR (how_many ds 2) * (g 2%nat * u 2%nat)
      + INR (how_many ds 3) * (g 3%nat * u 3%nat)).
  { apply (everywhere_is_right _ _ _ _ holds) with (is_more := is_more) (most := digits) (noise := noise); try assumption.
    intros k n0 n1 n2 H. rewrite <- lead_is_a_form.
    refine (not_negative_is_sound unit _ _ _ _ (brackets_are_around _) H).
    apply Rmult_lt_0_compat; [apply exp_pos|]. apply IZR_lt, Z.pow_pos_nonneg; lia. }
  assert (Hlead : IZR (2 ^ shift) * (weights_sum m xs * (logit_after m xs due - logit_after m xs c))
      - IZR margin * (if over_sum then 1 else weights_sum m xs)
      = always + INR (how_many ds 1) * (g 1%nat * u 1%nat) + INR (how_many ds 2) * (g 2%nat * u 2%nat)
        + INR (how_many ds 3) * (g 3%nat * u 3%nat)).
  { rewrite lead_times_sum by assumption. rewrite Hlast, Hsum.
    assert (Hq8 : (q < 8)%nat) by lia.
    unfold weights_sum. rewrite Hsum. rewrite !Hw by lia.
    unfold always. rewrite !gain_is_stored by lia. destruct (q =? 4)%nat, over_sum; ring. }
  rewrite <- Hlead in Hform. clear Hlead.
  set (D := weights_sum m xs) in *. set (lead_of := logit_after m xs due - logit_after m xs c) in *.
  assert (Hgoal : IZR margin / IZR (2 ^ shift) / (if over_sum then D else 1) <= lead_of); [|unfold lead_of in Hgoal; lra].
  destruct over_sum.
  - apply Rmult_le_reg_l with (IZR (2 ^ shift) * D); [nra|].
    replace (IZR (2 ^ shift) * D * (IZR margin / IZR (2 ^ shift) / D)) with (IZR margin) by (field; lra). lra.
  - apply Rmult_le_reg_l with (IZR (2 ^ shift) * D); [nra|].
    replace (IZR (2 ^ shift) * D * (IZR margin / IZR (2 ^ shift) / 1)) with (IZR margin * D) by (field; lra). lra.
Qed.
End Prompt.
End File.

(* ---- The theorem ------------------------------------------------------------------------------------------------------------------ *)

Theorem check_prompts_correct (x : prompt_file) (s : Z) (how : prompt_effort) (digits noise : option Z)
    (thesis over_sum : bool) (margin shift : Z) :
  check_prompts x s how digits noise thesis over_sum margin shift = true ->
  file_answers x digits noise thesis over_sum margin shift.
Proof.
  unfold check_prompts. cbv zeta. rewrite !andb_true_iff, !Z.leb_le, Z.ltb_lt.
  intros [[[[[shapes fit] bits] Hshift] Hpos] H]. pose proof (prompt_s_not_negative x s fit) as Hs.
  rewrite forallb_forall in H.
  assert (Hshapes := shapes). unfold prompt_shapes_hold in Hshapes. rewrite !andb_true_iff, Nat.leb_le in Hshapes.
  destruct Hshapes as [[[[[[[HE HQ] HK] HV] HO] Hout] Hb] H8].
  assert (Hleads : forall q ds c is_more, In q [4; 5; 6]%nat -> Forall (fun t => t = 1 \/ t = 2 \/ t = 3)%nat ds ->
    (how_many ds 1 <? how_many ds 2)%nat = is_more ->
    within digits (how_many ds 1) -> within digits (how_many ds 2) -> within noise (how_many ds 3) ->
    (c < words_answers x)%nat -> c <> due_after thesis q is_more ->
    let xs := (0 :: ds ++ if q =? 4 then [4] else [4; q])%nat in
    logit_after (stored_prompt_model x) xs c
      + IZR margin / IZR (2 ^ shift) / (if over_sum then weights_sum (stored_prompt_model x) xs else 1)
    <= logit_after (stored_prompt_model x) xs (due_after thesis q is_more)).
  { intros q ds c is_more Hq Hds Hmore H0 H1 H2 Hc Hne xs. specialize (H q Hq). unfold token_leads in H.
    rewrite forallb_forall in H. specialize (H is_more ltac:(destruct is_more; cbn; auto)). rewrite forallb_forall in H.
    specialize (H c). rewrite in_seq in H. destruct (Nat.eqb_spec c (due_after thesis q is_more)) as [|_]; [easy|].
    apply (prompt_leads x s shapes fit how digits noise over_sum margin shift bits Hshift q _ c) with (is_more := is_more);
      try assumption.
    - cbn in Hq. lia.
    - cbn. unfold due_after. destruct (q =? 4)%nat, (Bool.eqb is_more thesis); lia.
    - apply H. lia. }
  refine (conj _ (conj _ (conj _ _))).
  - unfold prompt_words_fit in fit. rewrite !andb_true_iff in fit.
    assert (F1 : forall l, all_fit1 (words_format x) s l = true -> Forall (is_number (words_format x)) l).
    { intros l. unfold all_fit1. rewrite forallb_forall. intros Hl. apply Forall_forall. intros w Hw.
      now apply (fits_is_number _ s), Hl. }
    assert (F2 : forall M, all_fit2 (words_format x) s M = true -> Forall (is_number (words_format x)) (concat M)).
    { intros M. unfold all_fit2. rewrite forallb_forall. intros HM. apply Forall_concat, Forall_forall. intros l Hl. apply F1, HM, Hl. }
    unfold prompt_words. rewrite !concat_app, !Forall_app. cbn [concat]. rewrite app_nil_r. repeat split; (apply F2 || apply F1); tauto.
  - unfold prompt_shapes, shape2, shape1, stored_prompt_model, matrix_of; cbn.
    assert (S2 : forall n k M, has_shape n k M = true ->
      length (map (vector_of (words_format x)) M) = n /\ Forall (fun v => length v = k) (map (vector_of (words_format x)) M))
      by (intros n k M; apply has_shape_map).
    refine (conj (S2 _ _ _ HE) (conj (S2 _ _ _ HQ) (conj (S2 _ _ _ HK) (conj (S2 _ _ _ HV) (conj (S2 _ _ _ HO)
      (conj (S2 _ _ _ Hout) (conj _ H8))))))).
    unfold vector_of. apply has_length_map. exact Hb.
  - apply Rdiv_lt_0_compat; [now apply IZR_lt|]. apply IZR_lt, Z.pow_pos_nonneg; lia.
  - intros ds Hds H0 H1 H2. cbn [most_digits most_noise stated] in *.
    refine (conj _ (conj _ _)); intros c Hc Hne; cbn [due_margin is_over_sum stated answers stored_prompt_model] in *.
    + exact (Hleads 4%nat ds c _ ltac:(cbn; auto) Hds eq_refl H0 H1 H2 Hc Hne).
    + exact (Hleads 5%nat ds c _ ltac:(cbn; auto) Hds eq_refl H0 H1 H2 Hc Hne).
    + exact (Hleads 6%nat ds c _ ltac:(cbn; auto) Hds eq_refl H0 H1 H2 Hc Hne).
Qed.
