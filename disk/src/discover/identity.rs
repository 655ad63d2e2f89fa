//! The identity of a disk, as the kernel and udev learned it when they found the disk. The disk is not asked.

use super::disk::{Bus, Protocol};
use super::tree::Tree;
use super::udev::Properties;
use crate::scsi::{AtaIdentity, inquiry};
use std::path::{Component, Path};

/// The knowledge of kernel and udev about a disk.
pub struct Identity {
    pub model: String,
    pub serial: Option<String>,
    pub wwn: Option<String>,
    pub bus: Bus,
    pub protocol: Protocol,
    pub rotation_rpm: Option<u16>,
    /// The answer to IDENTIFY DEVICE, if the kernel has it.
    pub ata: Option<AtaIdentity>,
}

impl Identity {
    /// The identity of the disk in `block`, its directory below /sys/block.
    pub fn read(tree: &Tree, block: &Path, properties: &Properties) -> Self {
        let device = block.join("device");
        let page = |name: &str| tree.bytes(device.join(name));
        let vendor = tree.attribute(device.join("vendor")).unwrap_or_default();
        let bus = bus(tree, block);
        // Translators have the vendor `ATA`, but bridges do not. Others may also have the page, for example
        // `scsi_debug`.
        let page_counts = vendor == "ATA" || bus == Bus::Usb;
        let page_of_ata = page("vpd_pg89").filter(|_| page_counts);
        let ata = page_of_ata.as_deref().and_then(inquiry::ata_identify).and_then(AtaIdentity::decode);
        let protocol = match bus {
            Bus::Virtio | Bus::Nvme | Bus::Other => Protocol::None,
            // A bridge answers START STOP UNIT and REQUEST SENSE itself; only the disk's own registers prove anything.
            Bus::Ata | Bus::Usb => Protocol::Ata,
            Bus::Sas | Bus::Scsi if vendor == "ATA" => Protocol::Ata,
            Bus::Sas | Bus::Scsi => Protocol::Scsi,
        };
        let rotation_rpm = page("vpd_pgb1").as_deref().and_then(inquiry::rotation_rpm);
        Self {
            model: model(tree, block, &vendor, ata.as_ref()),
            serial: serial(tree, block, properties, ata.as_ref()),
            wwn: wwn(tree, block, properties, ata.as_ref()),
            bus,
            protocol,
            rotation_rpm: rotation_rpm.or(ata.as_ref().and_then(|ata| ata.rotation_rpm)),
            ata,
        }
    }
}

/// The bus, by the devices between the host and the disk.
fn bus(tree: &Tree, block: &Path) -> Bus {
    let path = tree.target(block.join("device")).unwrap_or_default();
    let names: Vec<&str> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    let any = |prefix: &str| {
        names.iter().any(|name| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        })
    };
    let scsi = names.iter().any(|name| name.starts_with("target")) || tree.exists(block.join("device/scsi_level"));
    match () {
        () if any("usb") => Bus::Usb,
        () if any("nvme") => Bus::Nvme,
        () if any("ata") => Bus::Ata,
        () if any("end_device-") => Bus::Sas,
        () if scsi => Bus::Scsi,
        () if any("virtio") => Bus::Virtio,
        () => Bus::Other,
    }
}

/// The model. SCSI cuts it to 16 characters, and ATA has more.
fn model(tree: &Tree, block: &Path, vendor: &str, ata: Option<&AtaIdentity>) -> String {
    if let Some(ata) = ata.filter(|ata| !ata.model.is_empty()) {
        return ata.model.clone();
    }
    let model = tree.attribute(block.join("device/model")).unwrap_or_default();
    // PCI's numbers, and the stand-in for a vendor, mean nothing to people.
    let vendor = if vendor == "ATA" || vendor.starts_with("0x") { "" } else { vendor };
    format!("{vendor} {model}").trim().to_owned()
}

fn serial(tree: &Tree, block: &Path, properties: &Properties, ata: Option<&AtaIdentity>) -> Option<String> {
    let of_ata = ata.map(|ata| ata.serial.clone()).filter(|serial| !serial.is_empty());
    let page = || inquiry::serial(&tree.bytes(block.join("device/vpd_pg80"))?);
    let attribute = || ["device/serial", "serial"].into_iter().find_map(|name| tree.attribute(block.join(name)));
    let udev = || ["ID_SCSI_SERIAL", "ID_SERIAL_SHORT"].into_iter().find_map(|name| properties.get(name));
    of_ata.or_else(page).or_else(attribute).or_else(|| udev().map(str::to_owned))
}

/// The World Wide Name, in udev's notation. Names made up from vendor and serial number (`t10.`, `nvme.`) do not count.
fn wwn(tree: &Tree, block: &Path, properties: &Properties, ata: Option<&AtaIdentity>) -> Option<String> {
    let spelled = |name: &str| match name.split_once('.') {
        Some(("naa", digits)) => Some(format!("0x{digits}")),
        Some(("eui", _)) => Some(name.to_owned()),
        _ => None,
    };
    let attribute = || ["device/wwid", "wwid"].into_iter().find_map(|name| spelled(&tree.attribute(block.join(name))?));
    let page = || spelled(&inquiry::wwn(&tree.bytes(block.join("device/vpd_pg83"))?)?);
    let udev = || ["ID_WWN_WITH_EXTENSION", "ID_WWN"].into_iter().find_map(|name| properties.get(name));
    attribute().or_else(page).or_else(|| spelled(ata?.wwn.as_ref()?)).or_else(|| udev().map(str::to_owned))
}
