(* One region: if the check accepts it, the right logit is ahead by the margin. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Weightproof Require Import Model Stored Sums Reduction Forms Regions Queries Words Exponentials Check Tables.
Import ListNotations.
Open Scope R_scope.

Lemma combine_same {X Y Z : Type} (f : X -> Y) (g : X -> Z) (l : list X) :
  combine (map f l) (map g l) = map (fun y => (f y, g y)) l.
Proof. induction l; simpl; congruence. Qed.

Lemma combine_last {X Y : Type} (k : list X) (l : list Y) (a : X) (b : Y) :
  length k = length l -> combine (k ++ [a]) (l ++ [b]) = combine k l ++ [(a, b)].
Proof.
  revert l. induction k as [|y k IH]; intros [|z l] H; simpl in *; try lia; [reflexivity|].
  rewrite IH by lia. reflexivity.
Qed.

Section Region.
Variable x : file.
Variable s : Z.
Variable how : effort.
Variable shift : Z.
Hypothesis shapes : shapes_hold x = true.
Hypothesis fit : words_fit x s = true.
Hypothesis shift_suffices : (s <= shift)%Z.

Local Notation m := (stored_model x).
Let one := IZR (2 ^ s).

Variable xs : list nat.
Variable i : nat.
Variable scale : R.
Hypothesis scale_positive : 0 < scale.
Hypothesis normaliser_positive : 0 < normaliser m xs i.
Hypothesis in_range_xs : Forall (fun t => t < T m)%nat xs.
Hypothesis own_in_range : (own xs i < T m)%nat.

Let D := scale * normaliser m xs i.
Let its := items m xs i scale.
Let val := value_of D (own xs i) its.

Lemma D_positive : 0 < D.
Proof. now apply Rmult_lt_0_compat. Qed.

Lemma indices_in_range (k : nat) : In k (indices m xs) -> (k < all_tokens x)%nat.
Proof.
  rewrite Forall_forall in in_range_xs. unfold indices, all_tokens in *.
  cbn [kind T stored_model] in *.
  destruct (file_kind x); cbn [In]; intros H; try (specialize (in_range_xs k H); lia).
  destruct H as [<-|H]; [lia|]. specialize (in_range_xs k H). lia.
Qed.

(* A neuron's form, in integers, is its preactivation times D. *)
Lemma neuron_value (n : nat) : (n < p m)%nat ->
  Rmax 0 (val (neuron_form x s n)) = one * one * D * hidden m xs i n.
Proof.
  intros Hn. pose proof (one_positive x s fit) as Hone. fold one in Hone.
  rewrite Rmult_assoc, (hidden_times_D m xs i scale scale_positive normaliser_positive in_range_xs own_in_range).
  fold D. rewrite <- RmaxRmult by nra. rewrite Rmult_0_r. f_equal.
  unfold val, value_of, form. fold its.
  rewrite (bias_is_stored x s fit n Hn), (reads_is_stored x s shapes fit n _ Hn) by (unfold all_tokens in *; lia).
  rewrite (Rmult_plus_distr_l (one * one)). f_equal.
  - unfold zat. fold one. field. lra.
  - rewrite <- total_scale. apply total_ext. intros [a k] Hin.
    apply in_combine_r, indices_in_range in Hin.
    rewrite (reads_is_stored x s shapes fit n k Hn Hin). fold one. field. lra.
Qed.

Lemma D_value : Rmax 0 (val (D_form s)) = one * one * D.
Proof.
  pose proof (one_positive x s fit) as Hone. fold one in Hone. pose proof D_positive as HD.
  replace (val (D_form s)) with (one * one * D).
  - apply Rmax_right. apply Rlt_le. repeat apply Rmult_lt_0_compat; assumption.
  - unfold val, value_of, D_form. cbn [fst snd]. rewrite zat_nil, mult_IZR. fold one.
    rewrite (total_ext _ (fun _ => 0 * 0)); [rewrite total_scale; simpl; lra|].
    intros [a k] _. rewrite zat_nil. simpl. lra.
Qed.

(* ---- The neurons of a check ------------------------------------------------------------------------------------------------ *)

Definition ranged (least : zform -> Z) (f : zform) : zform * (Z * Z) := (f, (least f, Z.opp (least (negate f)))).

Definition neurons (least : zform -> Z) (right c : nat) (margin : Z) : list neuron :=
  map neuron_of (combine (map (ranged least) (neuron_forms x s ++ [D_form s])) (slopes s shift (outputs x s) right c margin)).

Lemma all_in_range (least : zform -> Z) (right c : nat) (margin : Z) :
  (forall f, IZR (least f) <= val f) -> Forall (in_range D (own xs i) its) (neurons least right c margin).
Proof.
  intros Hleast. apply Forall_forall. intros n Hn. unfold neurons in Hn.
  apply in_map_iff in Hn as [[[f [low high]] sl] [<- Hin]].
  apply in_combine_l in Hin. apply in_map_iff in Hin as [f' [Heq _]]. unfold ranged in Heq. injection Heq as -> <- <-.
  unfold in_range. cbn [neuron_of its_form Forms.low Forms.high]. split; [apply Hleast|].
  specialize (Hleast (negate f)). unfold val in Hleast. rewrite value_negate in Hleast.
  rewrite opp_IZR. lra.
Qed.

Definition difference (right c : nat) (row : list Z) : Z := ((zat1 row right - zat1 row c) * 2 ^ (shift - s))%Z.

Lemma W_2_length : length (integers2 (file_format x) s (W_2_words x)) = p m.
Proof.
  unfold shapes_hold in shapes. rewrite !andb_true_iff in shapes.
  assert (HW2 : has_shape (file_p x) (file_classes x) (W_2_words x) = true) by tauto.
  exact (proj1 (has_shape_map _ _ (integer (file_format x) s) _ HW2)).
Qed.

Lemma total_contributions (least : zform -> Z) (right c : nat) (margin : Z) :
  total (map (contribution D (own xs i) its) (neurons least right c margin))
  = sum (p m) (fun n => IZR (difference right c (nth n (integers2 (file_format x) s (W_2_words x)) []))
                        * (one * one * D * hidden m xs i n))
    + IZR (difference right c (integers1 (file_format x) s (b_2_words x)) - margin) * (one * one * D).
Proof.
  unfold neurons, slopes, outputs. cbn [fst snd]. rewrite map_app. cbn [map].
  rewrite combine_last.
  2: { rewrite !map_length, W_2_length. unfold neuron_forms. now rewrite map_length, seq_length. }
  rewrite !map_app, total_app. f_equal.
  - rewrite (map_nth_seq _ (integers2 (file_format x) s (W_2_words x)) []), W_2_length.
    replace (neuron_forms x s) with (map (neuron_form x s) (seq 0 (p m))).
    + rewrite (map_map (neuron_form x s) (ranged least)), combine_same, !map_map, <- total_seq. apply total_ext. intros n Hn. apply in_seq in Hn.
      unfold contribution. cbn [neuron_of ranged its_form Forms.slope].
      change (value_of D (own xs i) its (neuron_form x s n)) with (val (neuron_form x s n)).
      rewrite neuron_value by lia. reflexivity.
    + rewrite <- (map_id (neuron_forms x s)), (map_nth_seq _ (neuron_forms x s) no_form).
      unfold neuron_forms at 2. rewrite map_length, seq_length. reflexivity.
  - cbn [map total fold_right]. unfold contribution. cbn [neuron_of ranged its_form Forms.slope].
    change (value_of D (own xs i) its (D_form s)) with (val (D_form s)).
    rewrite D_value. unfold difference. lra.
Qed.

(* What the contributions add up to. *)
Lemma contributions_are_the_difference (least : zform -> Z) (right c : nat) (margin : Z) :
  total (map (contribution D (own xs i) its) (neurons least right c margin))
  = one * one * D * (IZR (2 ^ shift) * (logit m xs i right - logit m xs i c) - IZR margin).
Proof.
  pose proof (one_positive x s fit) as Hone. fold one in Hone.
  pose proof (s_not_negative x s fit) as Hs.
  rewrite total_contributions.
  assert (Hshift : IZR (2 ^ shift) = one * IZR (2 ^ (shift - s))).
  { unfold one. rewrite <- mult_IZR. f_equal. rewrite <- Z.pow_add_r by lia. f_equal. lia. }
  assert (Hfit := fit). unfold words_fit in Hfit. rewrite !andb_true_iff in Hfit.
  assert (HW2 : forall n k, IZR (zat1 (nth n (integers2 (file_format x) s (W_2_words x)) []) k) = one * at2 (W_2 m) n k).
  { intros n k. cbn [W_2 stored_model]. rewrite (at2_matrix_of _ s) by tauto. fold one. unfold zat2. field. lra. }
  assert (Hb2 : forall k, IZR (zat1 (integers1 (file_format x) s (b_2_words x)) k) = one * at1 (b_2 m) k).
  { intros k. cbn [b_2 stored_model]. rewrite (at1_vector_of _ s) by tauto. fold one. field. lra. }
  unfold logit, difference. rewrite !minus_IZR, !mult_IZR, !minus_IZR, !Hb2.
  rewrite (sum_ext _ _ (fun n => (one * one * D * one * IZR (2 ^ (shift - s)))
     * (hidden m xs i n * at2 (W_2 m) n right + (-1) * (hidden m xs i n * at2 (W_2 m) n c)))).
  - rewrite sum_scale, sum_plus, sum_scale, Hshift. ring.
  - intros n Hn. rewrite mult_IZR, minus_IZR, !HW2. ring.
Qed.

Theorem accepted_region_is_right (least : zform -> Z) (right : nat) (margin : Z) :
  (forall f, IZR (least f) <= val f) ->
  region_is_right x s how shift (outputs x s) least (map (ranged least) (neuron_forms x s ++ [D_form s])) right margin = true ->
  forall c, (c < classes m)%nat -> c <> right ->
  logit m xs i c + IZR margin / IZR (2 ^ shift) <= logit m xs i right.
Proof.
  intros Hleast. unfold region_is_right. rewrite all_of_forallb, forallb_forall. intros H c Hc Hne.
  specialize (H c). rewrite in_seq in H. destruct (Nat.eqb_spec c right) as [|_]; [easy|].
  assert (Hpos : 0 <= total (map (contribution D (own xs i) its) (neurons least right c margin))).
  { pose proof (all_in_range least right c margin Hleast) as Hr.
    fold (neurons least right c margin) in H. destruct (separately _) eqn:Hsep; [now apply separately_is_sound|].
    destruct (any_of _ ways_to_rise) eqn:Hlines.
    { rewrite any_of_existsb in Hlines. apply existsb_exists in Hlines as [rises [_ Hline]]. exact (relaxed_is_sound D (own xs i) its least _ _ Hleast Hr Hline). }
    destruct (_ <=? _)%nat; [|discriminate H; cbn in Hc; lia].
    assert (Hin : (0 <= c < 0 + file_classes x)%nat) by (cbn in Hc; lia).
    pose proof (jointly_is_sound D (own xs i) its least _ Hleast Hr no_form (H Hin)) as Hj.
    rewrite value_none in Hj. lra. }
  rewrite contributions_are_the_difference in Hpos.
  pose proof (one_positive x s fit) as Hone. fold one in Hone. pose proof D_positive as HD.
  pose proof (s_not_negative x s fit) as Hs.
  assert (Htwo : 0 < IZR (2 ^ shift)) by (apply IZR_lt, Z.pow_pos_nonneg; lia).
  assert (Hk : 0 < one * one * D) by (repeat apply Rmult_lt_0_compat; assumption).
  assert (Hge : 0 <= IZR (2 ^ shift) * (logit m xs i right - logit m xs i c) - IZR margin) by nra.
  apply Rmult_le_reg_l with (1 := Htwo). rewrite Rmult_plus_distr_l.
  replace (IZR (2 ^ shift) * (IZR margin / IZR (2 ^ shift))) with (IZR margin) by (field; lra). lra.
Qed.
End Region.
