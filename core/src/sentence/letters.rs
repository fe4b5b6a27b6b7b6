//! Kinds of letters by the pinned Unicode tables; those of the standard library move with the compiler.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

pub(super) fn is_lowercase(ch: char) -> bool {
    ch.general_category() == GeneralCategory::LowercaseLetter
}

pub(super) fn is_uppercase(ch: char) -> bool {
    matches!(
        ch.general_category(),
        GeneralCategory::UppercaseLetter | GeneralCategory::TitlecaseLetter
    )
}

pub(super) fn is_alphabetic(ch: char) -> bool {
    ch.general_category_group() == GeneralCategoryGroup::Letter
}

pub(super) fn is_alphanumeric(ch: char) -> bool {
    matches!(
        ch.general_category_group(),
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number
    )
}
