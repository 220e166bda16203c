(* Linear forms in integers, and how rectified ones are combined: what a check computes with. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Weightproof Require Import Model Sums.
Import ListNotations.
Open Scope R_scope.

(* forallb and existsb that stop at the first false and the first true, where Coq's virtual machine goes on. *)
Fixpoint all_of {X : Type} (f : X -> bool) (l : list X) : bool :=
  match l with [] => true | y :: l' => if f y then all_of f l' else false end.
Fixpoint any_of {X : Type} (f : X -> bool) (l : list X) : bool :=
  match l with [] => false | y :: l' => if f y then true else any_of f l' end.

Lemma all_of_forallb {X : Type} (f : X -> bool) (l : list X) : all_of f l = forallb f l.
Proof. induction l; [reflexivity|]. simpl. now destruct (f a). Qed.
Lemma any_of_existsb {X : Type} (f : X -> bool) (l : list X) : any_of f l = existsb f l.
Proof. induction l; [reflexivity|]. simpl. now destruct (f a). Qed.

(* A form has an integer for each token and one more, its constant. *)
Definition zform : Type := (list Z * Z)%type.

Definition zat (u : list Z) (s : nat) : Z := nth s u 0%Z.

(* v + a u, where what is missing in a list is 0. *)
Fixpoint add_scaled (a : Z) (u v : list Z) : list Z :=
  match u, v with
  | [], _ => v
  | x :: u', [] => (a * x)%Z :: add_scaled a u' []
  | x :: u', y :: v' => (a * x + y)%Z :: add_scaled a u' v'
  end.

Definition add_form (a : Z) (f g : zform) : zform := (add_scaled a (fst f) (fst g), (a * snd f + snd g)%Z).
Definition negate (f : zform) : zform := (map Z.opp (fst f), Z.opp (snd f)).
Definition no_form : zform := ([], 0%Z).

Lemma zat_nil (s : nat) : zat [] s = 0%Z.
Proof. now destruct s. Qed.

Lemma zat_add_scaled (a : Z) (u v : list Z) (s : nat) : zat (add_scaled a u v) s = (a * zat u s + zat v s)%Z.
Proof.
  revert v s. induction u as [|x u IH]; intros v s; simpl.
  - rewrite zat_nil. lia.
  - destruct v as [|y v], s as [|s]; unfold zat in *; simpl; try lia.
    + rewrite IH. now destruct s.
    + apply IH.
Qed.

Lemma zat_opp (u : list Z) (s : nat) : zat (map Z.opp u) s = (- zat u s)%Z.
Proof. unfold zat. change 0%Z with (Z.opp 0) at 1. now rewrite map_nth. Qed.

(* ---- Values of forms ------------------------------------------------------------------------------------- *)

Section Values.
Variable D : R.
Variable own : nat.
Variable items : list (R * nat).

(* D (u[own] + beta) + the weighted sum of u over the items. *)
Definition value_of (f : zform) : R :=
  D * (IZR (zat (fst f) own) + IZR (snd f)) + total (map (fun '(a, s) => a * IZR (zat (fst f) s)) items).

Lemma value_add (a : Z) (f g : zform) : value_of (add_form a f g) = IZR a * value_of f + value_of g.
Proof.
  unfold value_of, add_form. cbn [fst snd].
  rewrite zat_add_scaled, !plus_IZR, !mult_IZR.
  rewrite (total_ext (fun '(w, s) => w * IZR (zat (add_scaled a (fst f) (fst g)) s))
    (fun y => IZR a * (let '(w, s) := y in w * IZR (zat (fst f) s)) + (let '(w, s) := y in w * IZR (zat (fst g) s)))).
  - rewrite total_plus, total_scale. lra.
  - intros [w s] _. rewrite zat_add_scaled, plus_IZR, mult_IZR. lra.
Qed.

Lemma value_negate (f : zform) : value_of (negate f) = - value_of f.
Proof.
  unfold value_of, negate. cbn [fst snd].
  rewrite zat_opp, !opp_IZR.
  rewrite (total_ext _ (fun y => (-1) * (let '(w, s) := y in w * IZR (zat (fst f) s)))).
  - rewrite total_scale. lra.
  - intros [w s] _. rewrite zat_opp, opp_IZR. lra.
Qed.

Lemma value_none : value_of no_form = 0.
Proof.
  unfold value_of, no_form. cbn [fst snd]. rewrite zat_nil.
  rewrite (total_ext _ (fun y => 0 * 1)).
  - rewrite total_scale. simpl. lra.
  - intros [w s] _. rewrite zat_nil. simpl. lra.
Qed.

(* ---- Neurons ----------------------------------------------------------------------------------------------- *)

(* A neuron in a region of inputs: its form, a range of the form's values, and what the neuron adds to a difference of
   two logits. *)
Record neuron := { its_form : zform; low : Z; high : Z; slope : Z }.

Definition in_range (n : neuron) : Prop := IZR (low n) <= value_of (its_form n) <= IZR (high n).

(* slope * relu(form). *)
Definition contribution (n : neuron) : R := IZR (slope n) * Rmax 0 (value_of (its_form n)).

(* A lower bound on a contribution, from the range alone. *)
Definition least_contribution (n : neuron) : Z :=
  (slope n * Z.max 0 (if (0 <=? slope n)%Z then low n else high n))%Z.

Definition add_all (l : list Z) : Z := fold_right Z.add 0%Z l.

(* Is the sum of the contributions >= 0, one neuron at a time? *)
Definition separately (neurons : list neuron) : bool := (0 <=? add_all (map least_contribution neurons))%Z.

Lemma IZR_max0 (a : Z) : IZR (Z.max 0 a) = Rmax 0 (IZR a).
Proof.
  destruct (Z.max_spec 0 a) as [[H ->]|[H ->]].
  - rewrite Rmax_right; [easy|]. apply IZR_le. lia.
  - rewrite Rmax_left; [easy|]. apply IZR_le. lia.
Qed.

Lemma least_contribution_is_least (n : neuron) : in_range n -> IZR (least_contribution n) <= contribution n.
Proof.
  unfold in_range, least_contribution, contribution. intros [Hlow Hhigh].
  rewrite mult_IZR, IZR_max0.
  assert (Hmono : forall a b, a <= b -> Rmax 0 a <= Rmax 0 b).
  { intros a b Hab. apply Rle_max_compat_l. exact Hab. }
  destruct (Z.leb_spec 0 (slope n)) as [H|H].
  - apply IZR_le in H. apply Rmult_le_compat_l; [exact H|]. now apply Hmono.
  - apply IZR_lt in H. apply Rmult_le_compat_neg_l; [lra|]. now apply Hmono.
Qed.

Lemma separately_is_sound (neurons : list neuron) :
  Forall in_range neurons -> separately neurons = true -> 0 <= total (map contribution neurons).
Proof.
  intros Hr H. apply Z.leb_le, IZR_le in H.
  apply Rle_trans with (1 := H). clear H.
  induction Hr as [|n l Hn Hr IH]; simpl; [lra|].
  rewrite plus_IZR. apply Rplus_le_compat; [now apply least_contribution_is_least | exact IH].
Qed.

(* Is the sum of the contributions >= 0, as one form over all inputs? A neuron that is on is its form, one that is off
   is nothing, and an undecided one is either. *)
Fixpoint jointly (least : zform -> Z) (neurons : list neuron) (f : zform) : bool :=
  match neurons with
  | [] => (0 <=? least f)%Z
  | n :: rest =>
      if (high n <=? 0)%Z then jointly least rest f
      else if (0 <=? low n)%Z then jointly least rest (add_form (slope n) (its_form n) f)
      else if (slope n =? 0)%Z then jointly least rest f
      else if (0 <? slope n)%Z
        then if jointly least rest f then true else jointly least rest (add_form (slope n) (its_form n) f)
        else if jointly least rest f then jointly least rest (add_form (slope n) (its_form n) f) else false
  end.

Lemma jointly_is_sound (least : zform -> Z) (neurons : list neuron) :
  (forall f, IZR (least f) <= value_of f) -> Forall in_range neurons ->
  forall f, jointly least neurons f = true -> 0 <= value_of f + total (map contribution neurons).
Proof.
  intros Hleast. induction 1 as [|n rest [Hlow Hhigh] Hr IH]; intros f; cbn [jointly map total fold_right].
  - intros H. apply Z.leb_le, IZR_le in H. specialize (Hleast f). lra.
  - fold (total (map contribution rest)).
    pose proof (fun H => IH f H) as Hoff.
    pose proof (fun H => IH (add_form (slope n) (its_form n) f) H) as Hon. clear IH.
    rewrite value_add in Hon. unfold contribution at 1.
    set (v := value_of (its_form n)) in *.
    destruct (Z.leb_spec (high n) 0) as [H|H].
    { apply IZR_le in H. intros Hc. specialize (Hoff Hc). rewrite Rmax_left; lra. }
    destruct (Z.leb_spec 0 (low n)) as [H1|H1].
    { apply IZR_le in H1. intros Hc. specialize (Hon Hc). rewrite Rmax_right; lra. }
    destruct (Z.eqb_spec (slope n) 0) as [->|H2].
    { intros Hc. specialize (Hoff Hc). lra. }
    destruct (Z.ltb_spec 0 (slope n)) as [H3|H3].
    + apply IZR_lt in H3. destruct (jointly least rest f) eqn:Hc1; intros Hc2.
      * specialize (Hoff eq_refl). assert (0 <= Rmax 0 v) by apply Rmax_l. nra.
      * specialize (Hon Hc2). assert (v <= Rmax 0 v) by apply Rmax_r. nra.
    + destruct (jointly least rest f) eqn:Hc1; [|easy]. intros Hc2. specialize (Hoff eq_refl). specialize (Hon Hc2).
      unfold Rmax. destruct (Rle_dec 0 v); lra.
Qed.

(* ---- Lines below rectified forms ---------------------------------------------------------------------------- *)

(* slope * relu(z) - line * z is linear on each side of 0, so over a range it is least at an end or at 0. *)
Definition excess_at (slope line z : Z) : Z := ((if (0 <=? z)%Z then slope - line else - line) * z)%Z.
Definition least_excess (n : neuron) (line : Z) : Z :=
  let ends := Z.min (excess_at (slope n) line (low n)) (excess_at (slope n) line (high n)) in
  if ((low n <? 0) && (0 <? high n))%Z then Z.min 0 ends else ends.

(* Is the sum of the contributions >= 0, where each is at least its line and the least excess over it? Any line does. *)
Definition relaxed (least : zform -> Z) (line : neuron -> Z) (neurons : list neuron) : bool :=
  let lines := map (fun n => (n, line n)) neurons in
  let f := fold_right (fun '(n, a) f => if (a =? 0)%Z then f else add_form a (its_form n) f) no_form lines in
  (0 <=? least f + add_all (map (fun '(n, a) => least_excess n a) lines))%Z.

Lemma least_excess_is_least (n : neuron) (line : Z) :
  in_range n -> IZR line * value_of (its_form n) + IZR (least_excess n line) <= contribution n.
Proof.
  unfold in_range, contribution. set (z := value_of (its_form n)). intros [Hlow Hhigh].
  set (a := IZR (slope n)). set (b := IZR line).
  assert (Hends : IZR (least_excess n line) <= IZR (excess_at (slope n) line (low n)) /\
                  IZR (least_excess n line) <= IZR (excess_at (slope n) line (high n))).
  { unfold least_excess. split; apply IZR_le; destruct (_ && _); lia. }
  assert (Hzero : (low n < 0)%Z -> (0 < high n)%Z -> IZR (least_excess n line) <= 0).
  { intros H1%Z.ltb_lt H2%Z.ltb_lt. unfold least_excess. rewrite H1, H2. cbn [andb]. apply IZR_le. lia. }
  unfold excess_at in Hends. rewrite !mult_IZR in Hends. destruct Hends as [H1 H2].
  generalize dependent (IZR (least_excess n line)). intros e H1 H2 Hzero.
  assert (between : forall c u v, u <= z <= v -> e <= c * u -> e <= c * v -> e <= c * z).
  { intros c u v Hz Hu Hv. destruct (Rle_or_lt 0 c); nra. }
  destruct (Z.leb_spec 0 (low n)) as [Hl|Hl], (Z.leb_spec 0 (high n)) as [Hh|Hh];
    rewrite ?minus_IZR, ?opp_IZR in H1; rewrite ?minus_IZR, ?opp_IZR in H2; fold a b in H1, H2; clearbody a b z.
  - apply IZR_le in Hl. rewrite Rmax_right by lra. enough (e <= (a - b) * z) by lra. now apply (between _ (IZR (low n)) (IZR (high n))).
  - apply IZR_le in Hl. apply IZR_lt in Hh. lra.
  - assert (Hz : e <= 0).
    { destruct (Z.eq_dec (high n) 0) as [H0|H0]; [rewrite H0 in H2; lra|]. apply Hzero; lia. }
    unfold Rmax. destruct (Rle_dec 0 z).
    + enough (e <= (a - b) * z) by lra. apply (between _ 0 (IZR (high n))); lra.
    + rewrite Rmult_0_r, <- Ropp_mult_distr_l in *. enough (e <= - b * z) by lra. apply (between _ (IZR (low n)) 0); lra.
  - apply IZR_lt in Hh. rewrite Rmax_left by lra. rewrite Rmult_0_r. enough (e <= - b * z) by lra. now apply (between _ (IZR (low n)) (IZR (high n))).
Qed.

Lemma relaxed_is_sound (least : zform -> Z) (line : neuron -> Z) (neurons : list neuron) :
  (forall f, IZR (least f) <= value_of f) -> Forall in_range neurons ->
  relaxed least line neurons = true -> 0 <= total (map contribution neurons).
Proof.
  intros Hleast Hr H. apply Z.leb_le, IZR_le in H. rewrite plus_IZR in H.
  match type of H with context [least ?f] => pose proof (Hleast f) as Hf; set (form := f) in * end.
  enough (value_of form + IZR (add_all (map (fun '(n, a) => least_excess n a) (map (fun n => (n, line n)) neurons)))
          <= total (map contribution neurons)) by lra.
  unfold form. clear - Hr. induction Hr as [|n rest Hn Hr IH]; cbn [map fold_right add_all total].
  - rewrite value_none. simpl. lra.
  - fold (total (map contribution rest)). unfold add_all in *. cbn [fold_right]. rewrite plus_IZR.
    pose proof (least_excess_is_least n (line n) Hn) as He.
    destruct (Z.eqb_spec (line n) 0) as [H0|H0].
    + rewrite H0 in *. lra.
    + rewrite value_add. lra.
Qed.
End Values.
