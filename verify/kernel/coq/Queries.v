(* Lower bounds on a linear form over all sequences of a cell: where the mixing weights depend on the tokens (Dot and
   Bos, over a region), and where they depend on the positions (Lin, with k tokens t). *)

From Coq Require Import Reals List Arith ZArith Lia Lra Permutation.
From Weightproof Require Import Model Sums Forms Regions.
Import ListNotations.
Open Scope R_scope.

(* ---- Brackets ---------------------------------------------------------------------------------------------------- *)

(* Two integers around a real number. *)
Definition bracket : Type := (Z * Z)%type.
Definition around (b : bracket) (r : R) : Prop := IZR (fst b) <= r <= IZR (snd b).

(* The least value of r * w, for r in a bracket. *)
Definition least_product (b : bracket) (w : Z) : Z := (w * if (0 <=? w)%Z then fst b else snd b)%Z.

Lemma least_product_is_least (b : bracket) (w : Z) (r : R) :
  around b r -> IZR (least_product b w) <= r * IZR w.
Proof.
  intros [H1 H2]. unfold least_product. rewrite mult_IZR.
  destruct (Z.leb_spec 0 w) as [H|H]; [apply IZR_le in H | apply IZR_lt in H]; nra.
Qed.

(* The least value of each product r[s] * (u[s] + rest). *)
Fixpoint terms (weights : list bracket) (u : list Z) (rest : Z) : list Z :=
  match weights with
  | [] => []
  | b :: weights' => least_product b (hd 0 u + rest)%Z :: terms weights' (tl u) rest
  end.

Lemma length_terms (weights : list bracket) (u : list Z) (rest : Z) : length (terms weights u rest) = length weights.
Proof. revert u. induction weights as [|b weights IH]; intros u; simpl; congruence. Qed.

Lemma nth_terms (weights : list bracket) (u : list Z) (rest : Z) (s : nat) :
  (s < length weights)%nat ->
  zat (terms weights u rest) s = least_product (nth s weights (0, 0)%Z) (zat u s + rest)%Z.
Proof.
  unfold zat. revert u s. induction weights as [|b weights IH]; intros u s Hs; simpl in *; [lia|].
  destruct s as [|s]; [now destruct u|].
  rewrite IH by lia. destruct u as [|y u]; [now destruct s|reflexivity].
Qed.

(* ---- What both kinds of mixing share --------------------------------------------------------------------------------- *)

(* With softmax D is the sum of the weights; then a form is a sum over the items alone. *)
Lemma value_with_softmax (D : R) (own : nat) (items : list (R * nat)) (f : zform) :
  D = total (map fst items) ->
  value_of D own items f = total (map (fun '(a, s) => a * IZR (zat (fst f) s + (zat (fst f) own + snd f))) items).
Proof.
  intros ->. unfold value_of. rewrite Rmult_comm, <- total_scale, <- total_plus.
  apply total_ext. intros [a s] _. cbn [fst]. rewrite !plus_IZR. lra.
Qed.

(* What is added to each token's number, and what remains of D. *)
Definition rest_of (own : nat) (f : zform) : Z := (zat (fst f) own + snd f)%Z.
Definition shift_of (soft : bool) (rest : Z) : Z := if soft then rest else 0%Z.
Definition least_base (soft : bool) (D : bracket) (rest : Z) : Z := if soft then 0%Z else least_product D rest.

Lemma value_splits (soft : bool) (Db : bracket) (D : R) (own : nat) (items : list (R * nat)) (f : zform) :
  (if soft then D = total (map fst items) else around Db D) ->
  IZR (least_base soft Db (rest_of own f))
    + total (map (fun '(a, s) => a * IZR (zat (fst f) s + shift_of soft (rest_of own f))) items)
  <= value_of D own items f.
Proof.
  unfold least_base, shift_of. destruct soft; intros H.
  - rewrite (value_with_softmax _ _ _ _ H). unfold rest_of. lra.
  - unfold value_of, rest_of. rewrite <- plus_IZR. apply Rplus_le_compat; [now apply least_product_is_least|].
    apply Req_le, total_ext. intros [a s] _. now rewrite Z.add_0_r.
Qed.

(* ---- Weights that depend on tokens ------------------------------------------------------------------------------------- *)

(* Position's token t; brackets around D and around the weight of each token (BOS last, if there is one). *)
Record token_query := { q_soft : bool; q_bos : bool; q_own : nat; q_D : bracket; q_weights : list bracket }.

(* What does not depend on the region: the part that every sequence has, and the least term of each token. *)
Definition prepare_tokens (q : token_query) (f : zform) : Z * list Z :=
  let rest := rest_of (q_own q) f in
  let g := terms (q_weights q) (fst f) (shift_of (q_soft q) rest) in
  ((least_base (q_soft q) (q_D q) rest + if q_bos q then zat g (length g - 1) else 0)%Z, g).

Definition least_in_region (r : region) (prepared : Z * list Z) : Z :=
  (fst prepared + region_least (snd prepared) r)%Z.

Definition least_by_tokens (q : token_query) (r : region) (f : zform) : Z := least_in_region r (prepare_tokens q f).

Section Tokens.
Variable q : token_query.
Variable T : nat.
Variable D : R.
Variable weight : nat -> R.

Hypothesis T_and_bos : length (q_weights q) = (T + if q_bos q then 1 else 0)%nat.
Hypothesis weights_around : forall s, (s < length (q_weights q))%nat -> around (nth s (q_weights q) (0, 0)%Z) (weight s).

Lemma term_is_least (u : list Z) (rest : Z) (s : nat) : (s < length (q_weights q))%nat ->
  IZR (zat (terms (q_weights q) u rest) s) <= weight s * IZR (zat u s + rest).
Proof. intros Hs. rewrite nth_terms by assumption. now apply least_product_is_least, weights_around. Qed.

Lemma least_by_tokens_is_least (x : list nat) (r : region) (f : zform) :
  let items := map (fun s => (weight s, s)) (if q_bos q then T :: x else x) in
  (if q_soft q then D = total (map fst items) else around (q_D q) D) ->
  Forall (fun s => s < T)%nat x -> lies_in x r ->
  IZR (least_by_tokens q r f) <= value_of D (q_own q) items f.
Proof.
  intros items HD Hx Hr.
  eapply Rle_trans; [|apply (value_splits _ _ _ _ _ _ HD)].
  unfold least_by_tokens, least_in_region, prepare_tokens. cbn [fst snd].
  set (rest := shift_of _ _). set (g := terms _ _ _).
  assert (Hlen : length g = length (q_weights q)) by apply length_terms.
  assert (Hsum : IZR (region_least g r) <= total (map (fun '(a, s) => a * IZR (zat (fst f) s + rest)) (map (fun s => (weight s, s)) x))).
  { rewrite map_map. eapply Rle_trans.
    - apply (region_least_is_least g x r Hr). rewrite Forall_forall in *. intros s Hs.
      rewrite Hlen, T_and_bos. specialize (Hx s Hs). lia.
    - apply total_le. intros s Hs. rewrite Forall_forall in Hx. specialize (Hx s Hs).
      apply term_is_least. rewrite T_and_bos. lia. }
  rewrite !plus_IZR, Rplus_assoc. apply Rplus_le_compat_l. unfold items. clear items HD.
  destruct (q_bos q); cbn [map total fold_right]; fold (total (map (fun '(a, s) => a * IZR (zat (fst f) s + rest)) (map (fun s => (weight s, s)) x))).
  - apply Rplus_le_compat; [|exact Hsum].
    rewrite Hlen, T_and_bos. replace (T + 1 - 1)%nat with T by lia. apply term_is_least. rewrite T_and_bos. lia.
  - lra.
Qed.
End Tokens.

(* ---- Weights that depend on positions ------------------------------------------------------------------------------------ *)

(* Position's token t; brackets around D, around the weight of the position itself, and of the other positions. *)
Record position_query := {
  p_soft : bool; p_own : nat; p_D : bracket; p_own_weight : bracket; p_weights : list bracket }.

(* u[s] + rest for the tokens s < T. *)
Fixpoint shifted (T : nat) (u : list Z) (rest : Z) : list Z :=
  match T with
  | O => []
  | S T' => (hd 0 u + rest)%Z :: shifted T' (tl u) rest
  end.

Lemma length_shifted (T : nat) (u : list Z) (rest : Z) : length (shifted T u rest) = T.
Proof. revert u. induction T as [|T IH]; intros u; simpl; congruence. Qed.

Lemma nth_shifted (T : nat) (u : list Z) (rest : Z) (s : nat) : (s < T)%nat -> zat (shifted T u rest) s = (zat u s + rest)%Z.
Proof.
  unfold zat. revert u s. induction T as [|T IH]; intros u s Hs; [lia|]. simpl.
  destruct s as [|s]; [now destruct u|].
  rewrite IH by lia. destruct u as [|y u]; [now destruct s|reflexivity].
Qed.

(* The least product where w lies between two numbers. *)
Definition least_between (low high : Z) (b : bracket) : Z := Z.min (least_product b low) (least_product b high).

Lemma least_between_is_least (low high w : Z) (b : bracket) (r : R) :
  around b r -> (low <= w <= high)%Z -> IZR (least_between low high b) <= r * IZR w.
Proof.
  intros Hb [H1 H2]. apply IZR_le in H1, H2. unfold least_between.
  pose proof (least_product_is_least b low r Hb). pose proof (least_product_is_least b high r Hb).
  assert (IZR (Z.min (least_product b low) (least_product b high)) <= IZR (least_product b low)) by (apply IZR_le; lia).
  assert (IZR (Z.min (least_product b low) (least_product b high)) <= IZR (least_product b high)) by (apply IZR_le; lia).
  destruct (Rle_or_lt 0 r); nra.
Qed.

(* Insertion sort; nothing depends on its sorting. *)
Fixpoint insert (y : Z) (l : list Z) : list Z :=
  match l with
  | [] => [y]
  | z :: l' => if (y <=? z)%Z then y :: l else z :: insert y l'
  end.
Definition sort (l : list Z) : list Z := fold_right insert [] l.

(* A lower bound on the sum of m of the gains, and of none of the others: for every price, m prices and what gains
   fall short of it. The price is the m-th least gain, at which this is the sum of the m least ones. *)
Definition below_price (price gain : Z) : Z := Z.min 0 (gain - price).
Definition least_gains (m : nat) (prices gains : list Z) : Z :=
  let price := nth (pred m) prices 0%Z in
  (Z.of_nat m * price + add_all (map (below_price price) gains))%Z.

(* What does not depend on the own count: the sum if no other position held t, the gains, and prices to try. *)
Definition prepare_positions (q : position_query) (T : nat) (f : zform) : Z * (list Z * list Z) :=
  let rest := rest_of (p_own q) f in
  let w := shifted T (fst f) (shift_of (p_soft q) rest) in
  let others := all_but T (p_own q) in
  let low := match least_where others w with Some z => z | None => 0%Z end in
  let high := match least_where others (map Z.opp w) with Some z => Z.opp z | None => 0%Z end in
  let mine := zat w (p_own q) in
  let gains := map (fun b => (least_product b mine - least_between low high b)%Z) (p_weights q) in
  ((least_base (p_soft q) (p_D q) rest + least_product (p_own_weight q) mine
    + add_all (map (least_between low high) (p_weights q)))%Z, (gains, sort gains)).

Definition least_for_count (k : nat) (prepared : Z * (list Z * list Z)) : Z :=
  (fst prepared + least_gains (k - 1) (snd (snd prepared)) (fst (snd prepared)))%Z.

Definition least_by_positions (q : position_query) (T k : nat) (f : zform) : Z :=
  least_for_count k (prepare_positions q T f).

(* The positions but number i. *)
Definition but {X : Type} (i : nat) (l : list X) : list X := firstn i l ++ skipn (S i) l.

Lemma permutation_but {X : Type} (i : nat) (l : list X) (y : X) :
  (i < length l)%nat -> Permutation l (nth i l y :: but i l).
Proof.
  intros Hi. rewrite <- (firstn_skipn i l) at 1. unfold but.
  replace (skipn i l) with (nth i l y :: skipn (S i) l).
  - symmetry. apply Permutation_middle.
  - revert i Hi. induction l as [|z l IH]; intros i Hi; simpl in Hi; [lia|].
    destruct i as [|i]; [reflexivity|]. apply IH. lia.
Qed.

Lemma combine_but {X Y : Type} (i : nat) (k : list X) (l : list Y) :
  length k = length l -> combine (but i k) (but i l) = but i (combine k l).
Proof.
  unfold but. revert i l. induction k as [|a k IH]; intros i [|b l] H; simpl in *; try lia; [now destruct i|].
  destruct i as [|i]; [reflexivity|]. simpl. f_equal. apply IH. lia.
Qed.

Section Positions.
Variable q : position_query.
Variable T : nat.
Variable D : R.

(* Any price gives a lower bound. *)
Lemma gains_at_a_price (low high price mine : Z) (w : list Z) (weights : list bracket) (a : list R) (x : list nat) :
  zat w (p_own q) = mine ->
  (forall s, In s x -> s <> p_own q -> (low <= zat w s <= high)%Z) ->
  Forall2 around weights a -> length x = length a ->
  let gain b := (least_product b mine - least_between low high b)%Z in
  IZR (add_all (map (least_between low high) weights)
       + (Z.of_nat (count_occ Nat.eq_dec x (p_own q)) * price + add_all (map (below_price price) (map gain weights))))
  <= total (map (fun '(y, s) => y * IZR (zat w s)) (combine a x)).
Proof.
  intros Hmine Hw Ha Hx gain. revert x Hw Hx.
  induction Ha as [|b y weights a Hb Ha IH]; intros [|s x] Hw Hx; simpl in Hx; try lia.
  { simpl. lra. }
  cbn [combine map total fold_right].
  fold (total (map (fun '(y, s) => y * IZR (zat w s)) (combine a x))).
  eapply Rle_trans; [|apply Rplus_le_compat_l, (IH x)].
  - unfold add_all. cbn [map fold_right]. fold add_all.
    assert (Hprice : (below_price price (gain b) <= 0 /\ below_price price (gain b) <= gain b - price)%Z)
      by (unfold below_price; lia).
    destruct Hprice as [Hp1 Hp2]. apply IZR_le in Hp1, Hp2. rewrite minus_IZR in Hp2.
    cbn [count_occ]. destruct (Nat.eq_dec s (p_own q)) as [->|Hs].
    + rewrite Hmine. pose proof (least_product_is_least b mine y Hb) as Hl.
      unfold gain in Hp2 at 2. rewrite minus_IZR in Hp2.
      rewrite Nat2Z.inj_succ. unfold Z.succ. rewrite !plus_IZR, !mult_IZR, !plus_IZR. lra.
    + pose proof (least_between_is_least low high (zat w s) b y Hb (Hw s (or_introl eq_refl) Hs)) as Hl.
      rewrite !plus_IZR, !mult_IZR. lra.
  - intros s' Hs'. apply Hw. now right.
  - lia.
Qed.

Lemma least_by_positions_is_least (a : list R) (x : list nat) (i : nat) (f : zform) :
  let items := combine a x in
  let k := count_occ Nat.eq_dec x (p_own q) in
  (if p_soft q then D = total (map fst items) else around (p_D q) D) ->
  (p_own q < T)%nat -> Forall (fun s => s < T)%nat x ->
  length a = length x -> (i < length x)%nat -> nth i x O = p_own q ->
  around (p_own_weight q) (nth i a 0) -> Forall2 around (p_weights q) (but i a) ->
  IZR (least_by_positions q T k f) <= value_of D (p_own q) items f.
Proof.
  intros items k HD Hown Hx Hlen Hi Ht Hmine Hothers.
  eapply Rle_trans; [|apply (value_splits _ _ _ _ _ _ HD)].
  unfold least_by_positions, least_for_count, prepare_positions. cbn [fst snd].
  set (rest := shift_of _ _). set (w := shifted _ _ _).
  set (low := match least_where (all_but T (p_own q)) w with Some z => z | None => 0%Z end).
  set (high := match least_where (all_but T (p_own q)) (map Z.opp w) with Some z => Z.opp z | None => 0%Z end).
  assert (Hrange : forall s, (s < T)%nat -> s <> p_own q -> (low <= zat w s <= high)%Z).
  { intros s Hs Hne. assert (Hm : member (all_but T (p_own q)) s).
    { unfold member, all_but. rewrite nth_flags by assumption. now destruct (Nat.eqb_spec s (p_own q)). }
    assert (Hl : length w = T) by apply length_shifted.
    destruct (least_where_is_least _ w s Hm) as [z [Hz Hle]]; [lia|].
    destruct (least_where_is_least _ (map Z.opp w) s Hm) as [z' [Hz' Hle']]; [rewrite map_length; lia|].
    rewrite zat_opp in Hle'. unfold low, high. rewrite Hz, Hz'. lia. }
  rewrite (total_ext _ (fun '(y, s) => y * IZR (zat w s)) items).
  2: { intros [y s] Hin. unfold w. rewrite nth_shifted; [reflexivity|].
       apply in_combine_r in Hin. rewrite Forall_forall in Hx. now apply Hx. }
  rewrite (total_permutation _ _ _ (permutation_but i items (0, O) ltac:(unfold items; rewrite combine_length; lia))).
  cbn [map total fold_right]. fold (total (map (fun '(y, s) => y * IZR (zat w s)) (but i items))).
  unfold items. rewrite combine_nth by assumption. rewrite Ht, <- combine_but by assumption.
  replace (k - 1)%nat with (count_occ Nat.eq_dec (but i x) (p_own q)).
  2: { unfold k.
       pose proof (proj1 (Permutation_count_occ Nat.eq_dec _ _) (permutation_but i x O Hi) (p_own q)) as Hc.
       rewrite Ht in Hc. rewrite Hc. rewrite count_occ_cons_eq by reflexivity. lia. }
  assert (Hown_term : IZR (least_product (p_own_weight q) (zat w (p_own q))) <= nth i a 0 * IZR (zat w (p_own q)))
    by now apply least_product_is_least.
  assert (Hslots := gains_at_a_price low high
    (nth (pred (count_occ Nat.eq_dec (but i x) (p_own q)))
       (sort (map (fun b => (least_product b (zat w (p_own q)) - least_between low high b)%Z) (p_weights q))) 0%Z)
    (zat w (p_own q)) w (p_weights q) (but i a) (but i x) eq_refl).
  cbv beta zeta in Hslots. unfold least_gains. rewrite !plus_IZR in *.
  assert (Hlast : length (but i x) = length (but i a))
    by (unfold but; rewrite !app_length, !firstn_length, !skipn_length; lia).
  specialize (fun H => Hslots H Hothers Hlast).
  enough (forall s, In s (but i x) -> s <> p_own q -> (low <= zat w s <= high)%Z) as H by (specialize (Hslots H); lra).
  intros s Hs. apply Hrange. rewrite Forall_forall in Hx. apply Hx.
  apply (Permutation_in s (Permutation_sym (permutation_but i x O Hi))). now right.
Qed.
End Positions.
