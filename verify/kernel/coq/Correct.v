(* What the check shows: if it says true about a file, the file counts. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool Permutation.
From Weightproof Require Import Model Stored Sums Reduction Forms Regions Queries Words Exponentials Check Tables Margins.
Import ListNotations.
Open Scope R_scope.

Lemma largest_is_largest (l : list Z) (n : Z) : In n l -> (n <= largest l)%Z.
Proof.
  destruct l as [|a l]; [easy|]. cbn [largest].
  assert (H : forall l a, (a <= fold_left Z.max l a)%Z /\ forall n, In n l -> (n <= fold_left Z.max l a)%Z).
  { clear. induction l as [|b l IH]; intros a; cbn [fold_left In]; [split; [lia|easy]|].
    destruct (IH (Z.max a b)) as [H1 H2]. split; [lia|]. intros n [<-|Hn]; [lia|now apply H2]. }
  destruct (H l a) as [H1 H2]. intros [<-|Hn]; [exact H1|now apply H2].
Qed.

Lemma in_combine_seq {X : Type} (l : list X) (y : X) (n a t : nat) :
  (t < n)%nat -> (n <= length l)%nat -> In ((a + t)%nat, nth t l y) (combine (seq a n) l).
Proof.
  revert l a t. induction n as [|n IH]; intros [|b l] a [|t] Ht Hl; simpl in *; try lia.
  - left. now rewrite Nat.add_0_r.
  - right. replace (a + S t)%nat with (S a + t)%nat by lia. apply IH; lia.
Qed.

Section File.
Variable x : file.
Variable s : Z.
Variable how : effort.
Hypothesis shapes : shapes_hold x = true.
Hypothesis fit : words_fit x s = true.
Hypothesis bits_not_negative : (0 <= weight_bits how)%Z.

Local Notation m := (stored_model x).
Let one := IZR (2 ^ s).
Let bits := IZR (2 ^ weight_bits how).

(* The real number that integer scores are over. *)
Definition unit : R := IZR (score_unit x s) * sqrt (IZR (score_root x)).

(* By how much the weights of a row are scaled. *)
Definition scale_of (row : list Z) : R :=
  if file_softmax x then exp (- (IZR (largest row) / unit)) * bits else unit * bits.

Lemma score_unit_positive : (0 < score_unit x s)%Z.
Proof.
  pose proof (s_not_negative x s fit). assert (0 < 2 ^ s)%Z by (apply Z.pow_pos_nonneg; lia).
  unfold score_unit. destruct (file_kind x); nia.
Qed.

Lemma score_root_positive : (0 < score_root x)%Z.
Proof.
  pose proof (stored_is_well_shaped x shapes) as H. unfold well_shaped in H. cbn in H.
  unfold score_root. destruct (file_kind x); lia.
Qed.

Lemma unit_positive : 0 < unit.
Proof.
  apply Rmult_lt_0_compat; [apply IZR_lt, score_unit_positive|].
  apply sqrt_lt_R0, IZR_lt, score_root_positive.
Qed.

Lemma bits_positive : 0 < bits.
Proof. apply IZR_lt, Z.pow_pos_nonneg; lia. Qed.

Lemma scale_is_positive (row : list Z) : 0 < scale_of row.
Proof.
  pose proof unit_positive. pose proof bits_positive. unfold scale_of.
  destruct (file_softmax x); apply Rmult_lt_0_compat; try assumption. apply exp_pos.
Qed.

(* The brackets of a row are around its scaled weights. *)
Lemma weights_are_around (row : list Z) (k : nat) : (k < length row)%nat ->
  around (nth k (weights_of x how (score_divisor x s how) row) (0, 0)%Z)
         (scale_of row * raw_weight m (IZR (nth k row 0%Z) / unit)).
Proof.
  intros Hk. pose proof unit_positive as Hu. unfold weights_of, scale_of, raw_weight. cbn [softmax stored_model].
  destruct (file_softmax x).
  - rewrite (nth_map_in _ _ _ 0%Z) by assumption.
    pose proof (largest_is_largest row _ (nth_In row 0%Z Hk)) as Hle.
    pose proof (exp_bracket_is_around (F.PtoP (exp_precision how)) (weight_bits how) (score_unit x s) (score_root x)
      (nth k row 0 - largest row)%Z bits_not_negative ltac:(lia) score_unit_positive score_root_positive) as H.
    unfold score_divisor. fold unit in H. fold bits in H.
    replace (exp (- (IZR (largest row) / unit)) * bits * exp (IZR (nth k row 0%Z) / unit))
      with (exp (IZR (nth k row 0%Z - largest row) / unit) * bits); [exact H|].
    rewrite minus_IZR, Rmult_assoc, (Rmult_comm bits), <- Rmult_assoc, <- exp_plus. do 2 f_equal. field. lra.
  - rewrite (nth_map_in _ _ _ 0%Z) by assumption. unfold around. cbn [fst snd].
    rewrite mult_IZR. fold bits. replace (unit * bits * (IZR (nth k row 0%Z) / unit)) with (IZR (nth k row 0%Z) * bits) by (field; lra).
    lra.
Qed.

Lemma D_is_around : around (D_bracket x s how) (unit * bits).
Proof.
  unfold D_bracket. set (n := (score_unit x s * 2 ^ weight_bits how)%Z). set (r := score_root x).
  pose proof score_unit_positive. pose proof score_root_positive. fold r in H0.
  assert (Hn : (0 < n)%Z) by (unfold n; assert (0 < 2 ^ weight_bits how)%Z by (apply Z.pow_pos_nonneg; lia); nia).
  assert (Hsq : unit * bits = sqrt (IZR (n * n * r))).
  { unfold unit, bits, n. fold r. rewrite !mult_IZR.
    set (a := IZR (score_unit x s)). set (b := IZR (2 ^ weight_bits how)).
    assert (0 < a) by now apply IZR_lt. assert (0 < b) by (apply IZR_lt, Z.pow_pos_nonneg; lia).
    rewrite sqrt_mult by (repeat apply Rmult_le_pos; try lra; apply IZR_le; lia).
    rewrite sqrt_square by nra. ring. }
  rewrite Hsq. assert (Hpos : (0 <= n * n * r)%Z) by nia. generalize dependent (n * n * r)%Z. intros y _ Hy.
  pose proof (Z.sqrt_spec y Hy) as [Hlow Hhigh]. pose proof (Z.sqrt_nonneg y) as Hnn. unfold Z.succ in Hhigh.
  unfold around. cbn [fst snd]. split.
  - rewrite <- (sqrt_square (IZR (Z.sqrt y))) by (apply IZR_le; lia). apply sqrt_le_1_alt. rewrite <- mult_IZR. apply IZR_le. lia.
  - destruct (Z.eqb_spec (Z.sqrt y * Z.sqrt y) y) as [Heq|_].
    + rewrite <- Heq at 1. rewrite mult_IZR, sqrt_square by (apply IZR_le; lia). lra.
    + rewrite <- (sqrt_square (IZR (Z.sqrt y + 1))) by (apply IZR_le; lia). apply sqrt_le_1_alt.
      rewrite <- mult_IZR. apply IZR_le. lia.
Qed.

(* ---- One position ------------------------------------------------------------------------------------------------------------ *)

Section Position.
Variable xs : list nat.
Variable i : nat.
Hypothesis sequence : is_sequence m xs.
Hypothesis i_in_range : (i < L m)%nat.

Lemma sequence_in_range : Forall (fun t => t < T m)%nat xs.
Proof. apply sequence. Qed.

Lemma own_below_T : (own xs i < T m)%nat.
Proof.
  destruct sequence as [Hlen Hall]. rewrite Forall_forall in Hall. apply Hall, nth_In. lia.
Qed.

Lemma count_is_between : (1 <= count xs i <= L m)%nat.
Proof.
  destruct sequence as [Hlen _]. unfold count. split.
  - apply count_occ_In, nth_In. lia.
  - rewrite <- Hlen. apply count_occ_bound.
Qed.

Lemma length_scores : length (scores m xs i) = length (indices m xs).
Proof.
  destruct sequence as [Hlen _]. unfold scores, indices, context. cbn [kind stored_model L] in *.
  destruct (file_kind x); rewrite !map_length, ?seq_length; auto. simpl. now rewrite map_length.
Qed.

Lemma normaliser_is_positive : 0 < normaliser m xs i.
Proof.
  unfold normaliser. destruct (softmax m); [|lra].
  apply total_positive; [|intros; apply exp_pos].
  intros H. pose proof length_scores as Hlen. rewrite H in Hlen. unfold indices in Hlen.
  destruct sequence as [Hl _]. destruct (kind m); simpl in Hlen; lia.
Qed.

(* D, as a sum of weights with softmax, and in its bracket without. *)
Lemma D_of_items (row : list Z) :
  if file_softmax x
  then scale_of row * normaliser m xs i = total (map fst (items m xs i (scale_of row)))
  else around (D_bracket x s how) (scale_of row * normaliser m xs i).
Proof.
  unfold normaliser, items, raw_weight. cbn [softmax stored_model]. destruct (file_softmax x) eqn:Hs.
  - rewrite <- total_scale. pose proof length_scores as Hlen. revert Hlen.
    generalize (scores m xs i) (indices m xs). intros k. induction k as [|a k IH]; intros [|y l] H; simpl in *; try easy.
    f_equal. apply IH. lia.
  - unfold scale_of. rewrite Hs, Rmult_1_r. apply D_is_around.
Qed.

End Position.

(* ---- Dot and Bos -------------------------------------------------------------------------------------------------------------- *)

Definition score_row (t : nat) : list Z := nth t (scores_table x s) [].

Lemma items_by_tokens (xs : list nat) (i : nat) :
  kind m <> Lin -> is_sequence m xs -> (i < L m)%nat ->
  let row := score_row (own xs i) in
  items m xs i (scale_of row)
  = map (fun k => (scale_of row * raw_weight m (IZR (nth k row 0%Z) / unit), k)) (indices m xs).
Proof.
  intros Hkind Hseq Hi row. unfold items, scores.
  pose proof (own_below_T xs i Hseq Hi) as Hown.
  pose proof (sequence_in_range xs Hseq) as Hall.
  assert (Hscores : forall k, In k (indices m xs) ->
    score m (embedding m (nth i xs O)) (index_embedding m k) = IZR (nth k row 0%Z) / unit).
  { intros k Hk. change (nth i xs O) with (own xs i). rewrite <- own_embedding by assumption.
    rewrite (score_is_stored x s shapes fit _ _ Hkind); [|unfold all_tokens; lia | now apply (indices_in_range x xs i Hall Hown)].
    unfold unit, score_unit, score_root, zat2, zat1, row, score_row. cbn [kind d stored_model] in *.
    unfold root. cbn [kind d stored_model].
    destruct (file_kind x); [easy| | |]; rewrite ?INR_IZR_INZ, !mult_IZR, ?sqrt_1; reflexivity. }
  rewrite (context_is_indexed m xs Hall). rewrite map_map.
  assert (Hall_scores : map (fun k => score m (embedding m (nth i xs O)) (index_embedding m k)) (indices m xs)
    = map (fun k => IZR (nth k row 0%Z) / unit) (indices m xs)) by (apply map_ext_in; exact Hscores).
  rewrite Hall_scores.
  assert (Hlist : forall l : list R, match kind m with Lin => map (at2 (A m) i) (seq 0 (L m)) | _ => l end = l)
    by (intros l; destruct (kind m); easy).
  rewrite Hlist, map_map. rewrite <- (map_id (indices m xs)) at 2. apply combine_same.
Qed.

Lemma scores_table_row (t : nat) : (t < all_tokens x)%nat -> length (score_row t) = all_tokens x.
Proof.
  intros Ht. destruct (tokens_table_shape x s shapes) as [Hlen _].
  unfold score_row, scores_table. rewrite length_products_row; rewrite length_products; lia.
Qed.

Definition query_of (t : nat) (row : list Z) : token_query :=
  {| q_soft := file_softmax x; q_bos := match file_kind x with Bos => true | _ => false end; q_own := t;
     q_D := D_bracket x s how; q_weights := weights_of x how (score_divisor x s how) row |}.

Lemma least_by_tokens_is_sound (xs : list nat) (i : nat) (r : region) :
  kind m <> Lin -> is_sequence m xs -> (i < L m)%nat -> lies_in xs r ->
  let row := score_row (own xs i) in
  forall f, IZR (least_by_tokens (query_of (own xs i) row) r f)
            <= value_of (scale_of row * normaliser m xs i) (own xs i) (items m xs i (scale_of row)) f.
Proof.
  intros Hkind Hseq Hi Hr row f.
  pose proof (own_below_T xs i Hseq Hi) as Hown.
  pose proof (D_of_items xs i Hseq Hi row) as HD.
  pose proof (items_by_tokens xs i Hkind Hseq Hi) as Hitems. cbv zeta in Hitems. fold row in Hitems.
  rewrite Hitems in HD |- *. clear Hitems.
  set (weight := fun k => scale_of row * raw_weight m (IZR (nth k row 0%Z) / unit)) in *.
  assert (Hrow : length row = all_tokens x) by (apply scores_table_row; unfold all_tokens; lia).
  assert (Hlw : length (weights_of x how (score_divisor x s how) row) = length row)
    by (unfold weights_of; destruct (file_softmax x); apply map_length).
  pose proof (least_by_tokens_is_least (query_of (own xs i) row) (T m) (scale_of row * normaliser m xs i) weight) as H.
  cbn [q_weights q_soft q_bos q_own q_D query_of] in H.
  assert (Hind : indices m xs = if match file_kind x with Bos => true | _ => false end then T m :: xs else xs)
    by (unfold indices; cbn [kind stored_model]; now destruct (file_kind x)).
  rewrite Hind in HD |- *. apply H; try assumption.
  - rewrite Hlw, Hrow. unfold all_tokens. cbn [kind stored_model]. destruct (file_kind x); lia.
  - intros k Hk. rewrite Hlw in Hk. now apply weights_are_around.
  - now apply sequence_in_range.
Qed.

(* ---- Lin -------------------------------------------------------------------------------------------------------------------------- *)

Definition mixing_row (i : nat) : list Z := nth i (integers2 (file_format x) s (A_words x)) [].

Lemma A_shape : kind m = Lin ->
  length (integers2 (file_format x) s (A_words x)) = L m
  /\ Forall (fun row => length row = L m) (integers2 (file_format x) s (A_words x)).
Proof.
  intros Hk. cbn [kind L stored_model] in *. unfold shapes_hold in shapes. rewrite Hk, !andb_true_iff in shapes.
  apply (has_shape_map _ _ (integer (file_format x) s)). tauto.
Qed.

Lemma items_by_positions (xs : list nat) (i : nat) :
  kind m = Lin -> is_sequence m xs -> (i < L m)%nat ->
  let row := mixing_row i in
  items m xs i (scale_of row)
  = combine (map (fun n => scale_of row * raw_weight m (IZR n / unit)) row) xs.
Proof.
  intros Hkind Hseq Hi row. unfold items, scores, indices. rewrite Hkind. f_equal. rewrite map_map.
  destruct (A_shape Hkind) as [Hlen Hrows].
  assert (Hrow : length row = L m) by (apply length_nth_row; [assumption|lia]).
  rewrite (map_nth_seq _ row 0%Z), Hrow. apply map_ext_in. intros j _. do 2 f_equal.
  cbn [A stored_model]. rewrite (at2_matrix_of _ s).
  - unfold unit, score_unit, score_root, zat2, zat1, row, mixing_row. cbn [kind stored_model] in Hkind. rewrite Hkind.
    rewrite sqrt_1, Rmult_1_r. reflexivity.
  - apply (s_not_negative x s fit).
  - unfold words_fit in fit. rewrite !andb_true_iff in fit. tauto.
Qed.

Definition position_query_of (t : nat) (w : bracket * list bracket) : position_query :=
  {| p_soft := file_softmax x; p_own := t; p_D := D_bracket x s how; p_own_weight := fst w; p_weights := snd w |}.

Lemma Forall2_nth {X Y : Type} (P : X -> Y -> Prop) (k : list X) (l : list Y) (x0 : X) (y0 : Y) :
  length k = length l -> (forall j, (j < length k)%nat -> P (nth j k x0) (nth j l y0)) -> Forall2 P k l.
Proof.
  revert l. induction k as [|a k IH]; intros [|b l] Hlen H; simpl in *; try lia; constructor.
  - apply (H O). lia.
  - apply IH; [lia|]. intros j Hj. apply (H (S j)). lia.
Qed.

Lemma Forall2_but {X Y : Type} (P : X -> Y -> Prop) (k : list X) (l : list Y) (i : nat) :
  Forall2 P k l -> Forall2 P (but i k) (but i l).
Proof.
  unfold but. intros H. revert i. induction H as [|a b k l Hab H IH]; intros [|i]; simpl; auto.
  constructor; [exact Hab|]. apply IH.
Qed.

Lemma least_by_positions_is_sound (xs : list nat) (i : nat) :
  kind m = Lin -> is_sequence m xs -> (i < L m)%nat ->
  let row := mixing_row i in
  let w := weights_of x how (score_divisor x s how) row in
  forall f, IZR (least_by_positions (position_query_of (own xs i) (nth i w (0, 0)%Z, but i w)) (T m) (count xs i) f)
            <= value_of (scale_of row * normaliser m xs i) (own xs i) (items m xs i (scale_of row)) f.
Proof.
  intros Hkind Hseq Hi row w f.
  destruct (A_shape Hkind) as [Hlen Hrows].
  assert (Hrow : length row = L m) by (apply length_nth_row; [assumption|lia]).
  assert (Hlw : length w = length row) by (unfold w, weights_of; destruct (file_softmax x); apply map_length).
  pose proof (D_of_items xs i Hseq Hi row) as HD.
  pose proof (items_by_positions xs i Hkind Hseq Hi) as Hitems. cbv zeta in Hitems. fold row in Hitems.
  rewrite Hitems in HD |- *. clear Hitems.
  set (a := map (fun n => scale_of row * raw_weight m (IZR n / unit)) row) in *.
  assert (Hla : length a = length row) by apply map_length.
  assert (Haround : Forall2 around w a).
  { apply (Forall2_nth _ _ _ (0, 0)%Z 0); [rewrite Hla; exact Hlw|]. intros j Hj. unfold a.
    rewrite (nth_map_in _ _ _ 0%Z) by (rewrite <- Hlw; exact Hj). apply weights_are_around. rewrite <- Hlw. exact Hj. }
  pose proof (least_by_positions_is_least (position_query_of (own xs i) (nth i w (0, 0)%Z, but i w)) (T m)
    (scale_of row * normaliser m xs i) a xs i f) as H.
  cbn [p_soft p_own p_D p_own_weight p_weights position_query_of fst snd] in H.
  pose proof Hseq as [Hlx Hall].
  apply H; try assumption.
  - now apply own_below_T.
  - rewrite Hla, Hrow, Hlx. reflexivity.
  - rewrite Hlx. exact Hi.
  - reflexivity.
  - unfold a. rewrite (nth_map_in _ _ _ 0%Z) by (rewrite Hrow; exact Hi).
    apply weights_are_around. rewrite Hrow. exact Hi.
  - now apply Forall2_but.
Qed.
End File.

Lemma ranges_are_ranged {X : Type} (x : file) (s : Z) (least : X -> Z) (prepare : zform -> X) :
  ranges_of least (prepare_all prepare (forms x s))
  = map (ranged (fun f => least (prepare f))) (neuron_forms x s ++ [D_form s]).
Proof. unfold ranges_of, prepare_all, forms. now rewrite !map_map. Qed.

(* ---- The theorem --------------------------------------------------------------------------------------------------------------------- *)

(* The right class of every position leads by the margin of its count. *)
Lemma answers_lead (x : file) (s : Z) (how : effort) (margins : list Z) (shift : Z) :
  answers_are_right x s how margins shift = true ->
  forall xs, is_sequence (stored_model x) xs -> forall i, (i < file_L x)%nat ->
  forall c, (c < file_classes x)%nat -> c <> right_class x (count xs i) ->
  logit (stored_model x) xs i c + margin_of margins shift (count xs i) <= logit (stored_model x) xs i (right_class x (count xs i)).
Proof.
  unfold answers_are_right. rewrite !andb_true_iff, !Z.leb_le.
  intros [[[[[shapes fit] bits] Hshift] Hpos] Hcells] xs Hseq i Hi c Hc Hc'.
  pose proof (count_is_between x xs i Hseq Hi) as Hcount.
  pose proof (own_below_T x xs i Hseq Hi) as Hown.
  pose proof (sequence_in_range x xs Hseq) as Hall.
  unfold margin_of, cells_are_right in *. cbn [kind first_count L T stored_model] in *.
  assert (Htokens : kind (stored_model x) <> Lin -> all_of (token_is_right x s how margins shift (outputs x s) (forms x s)) (token_queries x s how) = true ->
    logit (stored_model x) xs i c + IZR (nth (count xs i - 1) margins 0%Z) / IZR (2 ^ shift)
      <= logit (stored_model x) xs i (right_class x (count xs i))).
  { intros Hkind H. rewrite all_of_forallb, forallb_forall in H.
    specialize (H (query_of x s how (own xs i) (score_row x s (own xs i)))).
    assert (Hin : In (query_of x s how (own xs i) (score_row x s (own xs i))) (token_queries x s how)).
    { unfold token_queries. apply in_map_iff. exists (own xs i, score_row x s (own xs i)). split; [reflexivity|].
      destruct (tokens_table_shape x s shapes) as [Hlen _].
      assert (Hst : (file_T x <= length (scores_table x s))%nat).
      { unfold scores_table. rewrite !length_products, Hlen. unfold all_tokens. cbn. lia. }
      exact (in_combine_seq (scores_table x s) [] (file_T x) 0 (own xs i) Hown Hst). }
    specialize (H Hin). clear Hin. unfold token_is_right in H. rewrite all_of_forallb, forallb_forall in H.
    specialize (H (count xs i)). rewrite in_seq in H. specialize (H ltac:(lia)). cbn [q_own query_of] in H.
    pose proof Hseq as [Hlx _].
    match goal with |- ?goal => refine (by_splitting_is_sound (fun y => y = xs -> goal) _ _ _ _ _ xs H _ eq_refl) end.
    2: { apply lies_in_cell; assumption. }
    intros r y Hr Hy ->.
    rewrite (ranges_are_ranged x s (least_in_region r)) in Hr.
    refine (accepted_region_is_right x s how shift shapes fit Hshift xs i (scale_of x s how (score_row x s (own xs i)))
      _ _ Hall Hown _ _ _ _ Hr c Hc Hc').
    - now apply scale_is_positive.
    - now apply normaliser_is_positive.
    - now apply least_by_tokens_is_sound. }
  destruct (file_kind x) eqn:Hkind; try (apply Htokens; [cbn; congruence|exact Hcells]).
  rewrite all_of_forallb, forallb_forall in Hcells.
  assert (Hlin : kind (stored_model x) = Lin) by exact Hkind.
  destruct (A_shape x s shapes Hlin) as [Hlen Hrows]. cbn [L stored_model] in *.
  set (row := mixing_row x s i). set (w := weights_of x how (score_divisor x s how) row).
  assert (Hin : In (nth i w (0, 0)%Z, but i w) (position_weights x s how)).
  { unfold position_weights. apply in_map_iff. exists (i, row). split; [reflexivity|].
    refine (in_combine_seq (integers2 (file_format x) s (A_words x)) [] (file_L x) 0 i Hi _). lia. }
  apply (nodup_In bracket_eq_dec) in Hin. specialize (Hcells _ Hin). clear Hin.
  unfold position_is_right in Hcells. rewrite all_of_forallb, forallb_forall in Hcells.
  specialize (Hcells (own xs i)). rewrite in_seq in Hcells. specialize (Hcells ltac:(lia)).
  rewrite all_of_forallb, forallb_forall in Hcells. specialize (Hcells (count xs i)). rewrite in_seq in Hcells. specialize (Hcells ltac:(lia)).
  rewrite (ranges_are_ranged x s (least_for_count (count xs i))) in Hcells.
  refine (accepted_region_is_right x s how shift shapes fit Hshift xs i (scale_of x s how row)
      _ _ Hall Hown _ _ _ _ Hcells c Hc Hc').
  - now apply scale_is_positive.
  - now apply normaliser_is_positive.
  - now apply least_by_positions_is_sound.
Qed.

(* What else the check shows. *)
Lemma checked_file (x : file) (s : Z) (how : effort) (margins : list Z) (shift : Z) :
  answers_are_right x s how margins shift = true ->
  Forall (is_number (file_format x)) (words x) /\ well_shaped (stored_model x) /\
  forall k, (1 <= k <= file_L x)%nat -> 0 < margin_of margins shift k.
Proof.
  unfold answers_are_right. rewrite !andb_true_iff, !Z.leb_le.
  intros [[[[[shapes fit] bits] Hshift] Hpos] Hcells].
  refine (conj _ (conj _ _)); [now apply (words_are_numbers x s)|now apply stored_is_well_shaped|].
  intros k Hk. unfold margins_are_positive in Hpos. rewrite forallb_forall in Hpos.
  specialize (Hpos k). rewrite in_seq, Z.ltb_lt in Hpos. apply Rdiv_lt_0_compat; [apply IZR_lt, Hpos; lia|].
  apply IZR_lt, Z.pow_pos_nonneg; [lia|]. pose proof (s_not_negative x s fit). lia.
Qed.

Theorem check_correct (x : file) (s : Z) (how : effort) (margins : list Z) (shift : Z) :
  check x s how margins shift = true -> file_counts x margins shift.
Proof.
  unfold check. rewrite andb_true_iff, negb_true_iff. intros [Hkind H].
  pose proof (checked_file _ _ _ _ _ H) as (Hnumbers & Hshaped & Hmargin).
  assert (Hby : counts_by (stored_model x) (margin_of margins shift)).
  { intros xs Hseq i Hi c Hc Hne. cbn [L classes first_count stored_model] in *.
    assert (Hright : right_class x (count xs i) = (count xs i - file_first_count x)%nat)
      by (unfold right_class, is_parity in *; now destruct (file_kind x)).
    rewrite <- Hright. apply (answers_lead _ _ _ _ _ H xs Hseq i Hi c Hc). rewrite Hright.
    pose proof (count_is_between x xs i Hseq Hi). unfold well_shaped, is_parity in *. cbn in *.
    destruct (file_kind x); (discriminate || lia). }
  refine (conj Hnumbers (conj Hshaped (conj _ (conj Hby Hmargin)))).
  intros xs Hseq i Hi c Hc Hne. pose proof (Hby xs Hseq i Hi c Hc Hne).
  pose proof (Hmargin (count xs i) (count_is_between x xs i Hseq Hi)). lra.
Qed.

Theorem check_parity_correct (x : file) (s : Z) (how : effort) (margin shift : Z) :
  check_parity x s how margin shift = true -> file_tells_parity x margin shift.
Proof.
  unfold check_parity. rewrite !andb_true_iff, negb_true_iff, Z.ltb_lt. intros [[[Hkind Hsoft] Hpos] H].
  assert (Hk : file_kind x = Parity) by (unfold is_parity in Hkind; now destruct (file_kind x)).
  pose proof (checked_file _ _ _ _ _ H) as (Hnumbers & Hshaped & _).
  assert (Hclasses : file_classes x = 2%nat) by (unfold well_shaped in Hshaped; cbn in Hshaped; rewrite Hk in Hshaped; tauto).
  assert (Hshift : (0 <= shift)%Z).
  { unfold answers_are_right in H. rewrite !andb_true_iff, !Z.leb_le in H. destruct H as [[[[[_ fit] _] Hs] _] _].
    pose proof (s_not_negative x s fit). lia. }
  refine (conj Hk (conj Hsoft (conj Hnumbers (conj Hshaped (conj _ _))))).
  - apply Rdiv_lt_0_compat; [now apply IZR_lt|]. apply IZR_lt, Z.pow_pos_nonneg; lia.
  - intros xs Hseq i Hi. cbn [L stored_model] in Hi.
    assert (Hright : right_class x (count xs i) = (count xs i mod 2)%nat) by (unfold right_class; now rewrite Hk).
    pose proof (Nat.mod_upper_bound (count xs i) 2 ltac:(lia)) as Hmod.
    pose proof (answers_lead _ _ _ _ _ H xs Hseq i Hi (1 - count xs i mod 2)%nat) as Hlead.
    rewrite Hright, Hclasses in Hlead. specialize (Hlead ltac:(lia) ltac:(lia)).
    pose proof (count_is_between x xs i Hseq Hi) as Hcount. cbn [L stored_model] in Hcount.
    unfold margin_of in Hlead. rewrite (nth_indep _ 0%Z margin), nth_repeat in Hlead by (rewrite repeat_length; lia). exact Hlead.
Qed.
