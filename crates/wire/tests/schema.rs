//! The wire schema, pinned: a name or a number can't change unnoticed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fmt::Write as _;

use highwater_wire::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

/// A descriptor set as text, one line per thing that the wire depends on, sorted by full name so
/// that moving a message to another file changes nothing.
fn render(set: &FileDescriptorSet) -> String {
    let mut blocks = Vec::new();
    for file in &set.file {
        assert_eq!(file.syntax(), "proto3", "{}", file.name());
        let package = file.package();
        for message in &file.message_type {
            message_blocks(package, message, &mut blocks);
        }
        blocks.extend(file.enum_type.iter().map(|e| enum_block(package, e)));
        blocks.extend(file.service.iter().map(|s| service_block(package, s)));
    }
    blocks.sort();
    blocks.join("\n")
}

fn message_blocks(scope: &str, message: &DescriptorProto, blocks: &mut Vec<String>) {
    let name = format!("{scope}.{}", message.name());
    let map_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
    let mut block = format!("message {name}{}\n", if map_entry { " (map entry)" } else { "" });
    let mut fields: Vec<_> = message.field.iter().collect();
    fields.sort_by_key(|field| field.number());
    for field in fields {
        writeln!(block, "  {}", field_line(message, field)).unwrap();
    }
    blocks.push(block);
    for nested in &message.nested_type {
        message_blocks(&name, nested, blocks);
    }
    blocks.extend(message.enum_type.iter().map(|e| enum_block(&name, e)));
}

fn field_line(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let label = match field.label() {
        Label::Repeated => "repeated ".to_owned(),
        _ if field.proto3_optional() => "optional ".to_owned(),
        _ => match field.oneof_index {
            Some(index) => format!("oneof {} ", message.oneof_decl[index as usize].name()),
            None => String::new(),
        },
    };
    let kind = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    format!("{} {label}{} {kind}", field.number(), field.name())
}

fn enum_block(scope: &str, descriptor: &EnumDescriptorProto) -> String {
    let mut block = format!("enum {scope}.{}\n", descriptor.name());
    for value in &descriptor.value {
        writeln!(block, "  {} {}", value.number(), value.name()).unwrap();
    }
    block
}

fn service_block(scope: &str, service: &ServiceDescriptorProto) -> String {
    let mut block = format!("service {scope}.{}\n", service.name());
    let side = |streams, name: &str| {
        format!("{}{}", if streams { "stream " } else { "" }, name.trim_start_matches('.'))
    };
    for method in &service.method {
        let input = side(method.client_streaming(), method.input_type());
        let output = side(method.server_streaming(), method.output_type());
        writeln!(block, "  {}({input}) -> {output}", method.name()).unwrap();
    }
    block
}

#[test]
fn the_wire_schema_is_the_one_on_record() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    insta::assert_snapshot!("wire_schema", render(&set));
}
