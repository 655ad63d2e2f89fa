//! Schemas as bytes. With them, a resumed job compares objects with the columns of those that it read before.

use crate::error::Error;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Schema, SchemaRef};
use std::io::Cursor;

/// A schema as a stream of Arrow's IPC without batches.
///
/// # Errors
/// If one of its types cannot be written.
pub fn schema_to_bytes(schema: &Schema) -> Result<Vec<u8>, Error> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema).map_err(Error::columns("writing a schema"))?;
    writer.finish().map_err(Error::columns("writing a schema"))?;
    writer.into_inner().map_err(Error::columns("writing a schema"))
}

/// The schema that [`schema_to_bytes`] wrote.
///
/// # Errors
/// If these are other bytes.
pub fn schema_from_bytes(bytes: &[u8]) -> Result<SchemaRef, Error> {
    let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(Error::columns("reading a schema"))?;
    Ok(reader.schema())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_schema::{DataType, Field};
    use std::collections::HashMap;

    #[test]
    fn a_schema_comes_back_with_its_notes() {
        let notes = HashMap::from([("larder".to_owned(), "a,b".to_owned())]);
        let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Binary, false)];
        let schema = Schema::new_with_metadata(fields, notes);
        assert_eq!(*schema_from_bytes(&schema_to_bytes(&schema).unwrap()).unwrap(), schema);
        assert!(schema_from_bytes(b"no schema").is_err());
    }
}
